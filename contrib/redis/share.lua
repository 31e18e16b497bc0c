-- One renewal of one member of a share: see docs/fleet.md for the protocol and
-- its proof. Amounts are whole units (0.001 req/s, or calls), times are µs.
--
-- KEYS: state, members (id -> record), deadlines (id by time), demand histogram.
local KS, KM, KE, KH = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local op, id = ARGV[1], ARGV[2]
local num = tonumber
local q = {
	nonce = num(ARGV[3]), seq = num(ARGV[4]), gen = num(ARGV[5]), kind = num(ARGV[6]),
	lease = num(ARGV[7]), ffor = num(ARGV[8]), drain = num(ARGV[9]), promise = num(ARGV[10]),
	floor = num(ARGV[11]), cap = num(ARGV[12]), fixed = num(ARGV[13]), want = num(ARGV[14]),
	hold = num(ARGV[15]), fall = num(ARGV[16]), viewN = num(ARGV[17]), viewF = num(ARGV[18]),
	was = num(ARGV[19]), luck = num(ARGV[20]),
}
local floor, min, max = math.floor, math.min, math.max

-- State. Memory that is not whole, that another run wrote, or that is older than
-- what a member has seen is no memory: start again.
local S = redis.call('GET', KS)
S = S and cmsgpack.unpack(S)
if S ~= nil and S ~= false and (type(S) ~= 'table' or not S.gen) then
	return redis.error_reply('WRONGTYPE the key holds something that is not a share')
end
local records, deadlines = redis.call('HLEN', KM), redis.call('ZCARD', KE)
if not S or S.run ~= run or q.gen > S.gen or records ~= S.count or deadlines ~= S.count then
	S = {
		kind = q.kind, lease = q.lease, ffor = q.ffor, drain = q.drain, run = run,
		gen = max(now, (S and S.gen or 0) + 1, q.gen + 1),
		clk = 0, last = now, sweep = 0, -- the share's own clock
		count = 0, live = 0, silent = 0, -- records; those with a lease; with a fallback only
		sum = 0, silentSum = 0, floors = 0, -- counted in all; fallbacks of the silent; floors of the live
		level = 0, slack = 0, due = 0,
		pool = 0, N = 0, known = 0, oldF = 0, -- recovery: see total()
		graceEnd = q.lease + floor(q.lease / 50) + floor(q.lease / 3) + q.drain,
		unknownEnd = q.ffor + floor(q.ffor / 50) + floor(q.lease / 3) + q.drain,
		fNow = 0, fBefore = 0, fTurn = 0, -- the largest fallback of this and the last period
		promises = {},
	}
	redis.call('HLEN', KH) -- an error where somebody else uses the key, as the two above
	redis.call('DEL', KM, KE, KH)
end
-- A clock that jumps, on one server or from one to the next, moves the share's
-- clock by a third of a lease at most.
S.clk = S.clk + min(max(now - S.last, 0), floor(S.lease / 3))
S.last = now

local function save()
	redis.call('SET', KS, cmsgpack.pack(S), 'PX', 4 * floor((S.lease + S.ffor) / 1000) + 1000)
end
local strange
if S.kind ~= q.kind then
	strange = {'KIND'}
elseif S.lease ~= q.lease or S.ffor ~= q.ffor or S.drain ~= q.drain then
	strange = {'TIMES', S.lease, S.ffor, S.drain}
elseif q.gen ~= S.gen then
	strange = {'GEN', S.gen}
end
if strange then
	save()
	return strange
end

local demand = {} -- bucket -> change of count, change of sum
local function count(x, n)
	local b = 0
	if x > 0 then
		local m, e = math.frexp(x)
		b = e * 8 + floor((m - 0.5) * 16)
	end
	local d = demand[b] or {0, 0}
	demand[b] = {d[1] + n, d[2] + n * x}
end
local function promise(p, n)
	local k = string.format('%.0f', p)
	local c = (S.promises[k] or 0) + n
	S.promises[k] = c > 0 and c or nil
end
-- Records: nonce, seq, c (counted), u (until), f (fallback), uf (until), floor, x
-- (demand above the floor), promise, joined, state (1 live, 2 silent, 3 left).
local function leaveLive(r)
	count(r.x, -1)
	S.floors, S.live = S.floors - r.floor, S.live - 1
end
local function leaveSilent(r)
	S.silentSum, S.silent = S.silentSum - r.f, S.silent - 1
end

-- What has run out, looked for a hundred times a lease. Late is safe.
local changed, gone = {}, {}
local due = {}
if S.clk >= S.sweep then
	due = redis.call('ZRANGEBYSCORE', KE, '-inf', S.clk, 'LIMIT', 0, 64)
	if #due < 64 then S.sweep = S.clk + floor(S.lease / 100) end
end
for _, other in ipairs(due) do
	local r = cmsgpack.unpack(redis.call('HGET', KM, other))
	if r.state == 1 then
		leaveLive(r)
		S.sum = S.sum - r.c
		if r.f > 0 and r.uf > S.clk then
			S.sum, S.silentSum, S.silent = S.sum + r.f, S.silentSum + r.f, S.silent + 1
			r.c, r.u, r.state = r.f, r.uf, 2
			changed[other] = r
		else
			promise(r.promise, -1)
			gone[other] = true
		end
	else
		if r.state == 2 then
			leaveSilent(r)
			S.sum = S.sum - r.c
			promise(r.promise, -1)
		end
		gone[other] = true
	end
end
local r = changed[id]
if not r and not gone[id] then
	r = redis.call('HGET', KM, id)
	r = r and cmsgpack.unpack(r)
end

local function write()
	for b, d in pairs(demand) do
		if d[1] ~= 0 then redis.call('HINCRBY', KH, b * 2, d[1]) end
		if d[2] ~= 0 then redis.call('HINCRBY', KH, b * 2 + 1, string.format('%.0f', d[2])) end
	end
end
local function finish()
	for other, rec in pairs(changed) do
		redis.call('HSET', KM, other, cmsgpack.pack(rec))
		redis.call('ZADD', KE, rec.u, other)
	end
	for other in pairs(gone) do
		if not changed[other] then
			redis.call('HDEL', KM, other)
			redis.call('ZREM', KE, other)
			S.count = S.count - 1
		end
	end
	save()
end
-- Nothing but the sweep and the clock has changed.
local function refuse(...)
	write()
	finish()
	return {...}
end

if r and r.nonce > q.nonce then return refuse('REPLACED') end
if r and r.nonce == q.nonce and q.seq <= r.seq then return refuse('OLD') end

if op == 'leave' then
	if not r or r.nonce ~= q.nonce or r.state == 3 then return refuse('OK') end
	if r.state == 1 then leaveLive(r) else leaveSilent(r) end
	S.sum = S.sum - r.c
	promise(r.promise, -1)
	r.seq, r.c, r.f, r.floor, r.x, r.state = q.seq, 0, 0, 0, 0, 3
	r.u = S.clk + S.lease -- so that a request that was late does not join again
	changed[id] = r
	return refuse('OK')
end

local function lowest(p)
	for k in pairs(S.promises) do p = min(p, tonumber(k)) end
	return p
end
if not r and q.was == 0 and q.hold == 0 and S.floors + q.floor > lowest(q.promise) then
	return refuse('FULL', S.live, S.floors, lowest(q.promise))
end

-- The member's word for what it holds replaces what is on record: it has no
-- request under way but this one.
local joined = S.clk
if r then
	if r.state == 1 then leaveLive(r) elseif r.state == 2 then leaveSilent(r) end
	if r.state ~= 3 then
		promise(r.promise, -1)
		S.sum = S.sum - r.c
		if r.nonce == q.nonce then joined = r.joined end
	end
else
	if not gone[id] then S.count = S.count + 1 end
	if q.was == 1 then -- another memory knew it
		joined = -S.lease
		S.pool, S.known = S.pool + q.hold, S.known + 1
	end
	S.N, S.oldF = max(S.N, q.viewN), max(S.oldF, q.viewF)
end
promise(q.promise, 1)
S.live, S.floors, S.sum = S.live + 1, S.floors + q.floor, S.sum + q.hold
local P = lowest(q.promise)

-- total is what may be counted in all. After a loss of memory: at first what
-- members show to hold, then, while a fallback of a member that has not come
-- back can be in force, the promise less those.
local unknown = 0
if S.clk < S.unknownEnd then unknown = max(S.N - S.known, 0) end
local total = P
if S.clk < S.graceEnd then
	total = min(P, S.pool)
elseif unknown > 0 then
	total = P - min(unknown * S.oldF, max(P - S.pool, 0))
end

-- Demand above the floor, with a little room to grow.
local x = q.want + floor(q.want / 64) + floor(P / (128 * S.live)) - q.floor
x = max(min(x, q.cap - q.floor), 0)
count(x, 1)
write()

-- The level of max-min fairness over the histogram; exact where the members of a
-- bucket are alike.
S.due = S.due - 1
if S.due <= 0 then
	S.due = floor(S.live / 16)
	local h, buckets = {}, {}
	local flat = redis.call('HGETALL', KH)
	for i = 1, #flat, 2 do h[tonumber(flat[i])] = tonumber(flat[i + 1]) end
	for k, n in pairs(h) do
		if k % 2 == 0 and n > 0 then buckets[#buckets + 1] = k end
	end
	table.sort(buckets)
	local left, n = max(total - S.silentSum - S.floors, 0), S.live
	S.level, S.slack = -1, 0
	for _, k in ipairs(buckets) do
		local bn, bs = h[k], h[k + 1] or 0
		if bs * n >= left * bn then
			S.level = left / n
			break
		end
		left, n = left - bs, n - bn
	end
	if S.level < 0 then S.slack = left / S.live end
	for _, k in ipairs({KM, KE, KH}) do redis.call('PEXPIRE', k, 4 * floor((S.lease + S.ffor) / 1000) + 1000) end
end
local target
if S.level >= 0 then
	target = q.floor + min(x, floor(S.level + q.luck / 1000))
else
	target = q.floor + x + floor(S.slack + q.luck / 1000)
end
target = min(target, q.cap)

-- The grant: down at once, up as far as there is room.
local a = min(target, q.hold + max(total - S.sum, 0))
local c = max(a, q.hold)
S.sum = S.sum + c - q.hold
local f = 0
if S.clk - joined >= S.lease then
	f = min(a, q.fixed >= 0 and q.fixed or floor(P / (S.live + S.silent)))
end
if S.clk - S.fTurn > S.ffor + floor(S.ffor / 50) + floor(S.lease / 3) then
	S.fNow, S.fBefore, S.fTurn = 0, S.fNow, S.clk
end
S.fNow = max(S.fNow, f)
changed[id] = {
	nonce = q.nonce, seq = q.seq, c = c, f = max(f, q.fall), floor = q.floor, x = x,
	promise = q.promise, joined = joined, state = 1,
	u = S.clk + S.lease + floor(S.lease / 50) + floor(S.lease / 3) + q.drain,
	uf = S.clk + S.ffor + floor(S.ffor / 50) + floor(S.lease / 3) + q.drain,
}
finish()
local disagree = 0
for k in pairs(S.promises) do
	if tonumber(k) ~= P then disagree = 1 end
end
return {'OK', S.gen, a, f, S.live + S.silent + unknown, max(S.fNow, S.fBefore, unknown > 0 and S.oldF or 0),
	P, disagree, S.live, S.sum, S.silentSum, S.clk < S.graceEnd and 1 or 0}
