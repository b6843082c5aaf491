-- Counts every answer that is not 200, and prints one line of figures.
local threads = {}

function setup(thread)
	table.insert(threads, thread)
end

function init()
	other = 0
end

function response(status)
	if status ~= 200 then
		other = other + 1
	end
end

function done(summary, latency)
	local other = 0
	for _, thread in ipairs(threads) do
		other = other + thread:get("other")
	end
	local errors = summary.errors
	print(string.format("requests=%d other=%d connect=%d read=%d write=%d timeout=%d p50us=%d p99us=%d maxus=%d",
		summary.requests, other, errors.connect, errors.read, errors.write, errors.timeout,
		latency:percentile(50), latency:percentile(99), latency.max))
end
