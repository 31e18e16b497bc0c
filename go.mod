module agilelimiter

go 1.26
