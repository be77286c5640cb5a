"""What tests share: a running ingester, senders, recordings, made-up spans."""
