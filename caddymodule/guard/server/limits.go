package server

// Limits bound what one request may cost. The zero value means the defaults.
type Limits struct {
	// Answer is the size up to which an answer is judged, in bytes. A longer one is withheld. Default: 16 MiB.
	Answer int64
	// Body is the size up to which a body is judged, in bytes. A longer one is refused. Default: 16 MiB.
	Body int64
	// Requests is how many requests to the FHIR server one request may cause, each entry of a bundle apart. Default:
	// 64.
	Requests int
	// Entries is how many entries a batch or transaction may have. Default: 500.
	Entries int
}

const (
	defaultSize     = 16 << 20
	defaultMemory   = 256 << 20
	defaultRequests = 64
	defaultEntries  = 500
)

// AnswerOf is how long an answer may be that is judged in memory of a size: a sixteenth of it, and at least the default.
func AnswerOf(memory int64) int64 { return max(defaultSize, memory/16) }

// orDefaults are the limits in effect.
func (l Limits) orDefaults() Limits {
	return Limits{
		Answer: orDefault(l.Answer, defaultSize), Body: orDefault(l.Body, defaultSize),
		Requests: orDefault(l.Requests, defaultRequests), Entries: orDefault(l.Entries, defaultEntries),
	}
}

func orDefault[N int | int64](n, otherwise N) N {
	if n <= 0 {
		return otherwise
	}
	return n
}
