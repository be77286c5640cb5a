UPDATE policies SET status = $status WHERE version = $version
