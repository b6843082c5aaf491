-- Makes the calls of a step: all, or none.
--
-- KEYS[1]     record of the step, which is there if it was made before
-- KEYS[1+i]   entry of the call i
-- KEYS[2+n]   stream of changes, if one of the n calls is followed
-- ARGV[1]     how long the record of the step is kept, in ms
-- ARGV[2]     how long changes are kept in the stream, in ms
-- ARGV[3]     how many calls need room that others of the step must make if memory is full
-- ARGV[4...]  of each call: method, value, old value or longest length, lifetime in ms,
--             and the name in the stream if it is followed
--
-- Returns {0 or the call that failed, seconds and microseconds of the clock, 1 if something was
-- written and 0 if not, what each call found}.
local n = math.floor((#ARGV - 3) / 5)
local time = redis.call('TIME')
local reply = {0, tonumber(time[1]), tonumber(time[2]), 1}
local made = redis.call('GET', KEYS[1])
local taken = made and cmsgpack.unpack(made) or {}
local held = {}
local changes, announced, missing, freed = false, false, false, 0

if made then -- a write, so that WAIT after it waits for the step, too
	redis.call('PEXPIRE', KEYS[1], ARGV[1])
	if type(taken) == 'number' then
		reply[1] = taken
		return reply
	end
end

-- Records what comes of the step if that is no change. Somebody will be refused for it, and a
-- master that was cut off and replaced, which may not know what the next one knows, must not
-- have the say: it is not allowed to write, or no replica confirms it. DEL deletes nothing:
-- after it, also a server whose memory is full takes the record.
local function record(outcome)
	redis.call('DEL', KEYS[1])
	redis.call('SET', KEYS[1], cmsgpack.pack(outcome), 'PX', ARGV[1])
end

for i = 1, n do
	local at = 3 + (i - 1) * 5
	local method, value, old = ARGV[at + 1], ARGV[at + 2], ARGV[at + 3]
	local found = false
	if method ~= 'Put' and method ~= 'Delete' then
		found = redis.call('GET', KEYS[1 + i])
	end
	if found then
		if string.byte(found) ~= 1 then
			return redis.error_reply('NEWER the entry has version ' .. (string.byte(found) or 'none'))
		end
		found = string.sub(found, 2)
	end
	if made then
		if method == 'Take' then
			found = table.remove(taken, 1)
		end
	elseif method == 'Add' and found
		or method == 'Swap' and found ~= old
		or method == 'Take' and not found
		or method == 'Append' and #(found or '') + #value > tonumber(old) then
		record(i)
		reply[1] = i
		return reply
	elseif method == 'Take' then
		taken[#taken + 1] = found
	end
	if method == 'Take' or method == 'Delete' and redis.call('PTTL', KEYS[1 + i]) ~= -2 then
		freed = freed + 1
	end
	held[i] = found
	changes = changes or method ~= 'Get'
	announced = announced or method ~= 'Get' and ARGV[at + 5] ~= ''
	missing = missing or not found
	reply[4 + i] = (method == 'Get' or method == 'Take') and found
end

if made then
	return reply
end
if not changes then
	if missing then
		record(taken)
	else
		reply[4] = 0
	end
	return reply
end

-- A server that is full refuses the first command that needs memory, unless one has written
-- already, even if that was a DEL of nothing. So what makes room for what it stores succeeds,
-- and so does what needs none, with the record of the step; anything else is refused before it
-- has changed something.
if freed >= tonumber(ARGV[3]) then
	redis.call('DEL', KEYS[1])
end
-- A command that the user has no right to, or that the server does not take, ends the script, and
-- what was written before stays. So each kind is tried first, on the record, which is not there:
-- these change nothing. SET is the first of them, which a full server refuses.
redis.call('SET', KEYS[1], '', 'XX')
redis.call('DEL', KEYS[1])
if announced then
	redis.call('XADD', KEYS[1], 'NOMKSTREAM', '*', 'k', '')
end
for i = 1, n do
	local at = 3 + (i - 1) * 5
	local method, value = ARGV[at + 1], ARGV[at + 2]
	if method == 'Append' then
		if held[i] then -- it does not shorten a lifetime
			ARGV[at + 4] = string.format('%.0f', math.max(ARGV[at + 4], redis.call('PTTL', KEYS[1 + i])))
		end
		held[i] = (held[i] or '') .. value
	elseif method == 'Put' or method == 'Add' or method == 'Swap' then
		held[i] = value
	else
		held[i] = false
	end
	if held[i] then
		redis.call('SET', KEYS[1 + i], '\1' .. held[i], 'PX', ARGV[at + 4])
	end
end
for i = 1, n do
	local method = ARGV[3 + (i - 1) * 5 + 1]
	if method == 'Take' or method == 'Delete' then
		redis.call('DEL', KEYS[1 + i])
	end
end
redis.call('SET', KEYS[1], cmsgpack.pack(taken), 'PX', ARGV[1])

local now = time[1] * 1000 + math.floor(time[2] / 1000)
for i = 1, n do
	local at = 3 + (i - 1) * 5
	local method, key = ARGV[at + 1], ARGV[at + 5]
	if key ~= '' and method ~= 'Get' then
		local oldest = string.format('%.0f', now - ARGV[2])
		-- The stream is no copy of what lives longer than it remembers: that is asked for.
		if held[i] and tonumber(ARGV[at + 4]) <= tonumber(ARGV[2]) then
			local expiry = string.format('%.0f', now + ARGV[at + 4])
			redis.call('XADD', KEYS[2 + n], 'MINID', '~', oldest, '*', 'k', key, 'v', held[i], 'e', expiry)
		else
			redis.call('XADD', KEYS[2 + n], 'MINID', '~', oldest, '*', 'k', key)
		end
	end
end
return reply
