DELETE FROM model_promotions WHERE live = $live AND time = $time
