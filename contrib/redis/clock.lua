-- The server's own clock in µs, and the name of this run of this server process.
-- A restart and a failover change the name: memory that another run wrote may
-- lack its last moments.
local t = redis.call('TIME')
local now = tonumber(t[1]) * 1000000 + tonumber(t[2])
local run = string.match(redis.call('INFO', 'server'), 'run_id:(%w+)')
if not run then return redis.error_reply('ERR INFO server has no run_id') end
