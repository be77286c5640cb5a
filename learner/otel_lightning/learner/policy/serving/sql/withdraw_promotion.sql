DELETE FROM promotions WHERE key = $key AND time = $time
