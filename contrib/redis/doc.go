package redisshare

const prefix = "agilelimiter/contrib/redis: "
