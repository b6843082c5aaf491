package history

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"time"
)

// Outage is a period in which a gateway could not respond. The grace of refresh tokens that were replaced during the
// outage, or within the grace before it, starts at its end.
type Outage struct {
	Began time.Duration // since the start of the record
	Over  time.Duration
}

// always is earlier than any operation.
const always = -never

// inaccuracy is the maximum delay of a log line after its event.
const inaccuracy = 100 * time.Millisecond

// Outages parses the outages of the store, and the time before the start, from a gateway's log.
func (r *Record) Outages(log io.Reader) (outages []Outage, err error) {
	lines := bufio.NewReader(log)
	for {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return outages, nil
		} else if err != nil {
			return nil, err
		}
		var entry struct {
			Message string  `json:"msg"`
			Time    float64 `json:"ts"`    // in seconds
			After   float64 `json:"after"` // in seconds
		}
		if json.Unmarshal(line, &entry) != nil {
			continue // not a JSON log line
		}
		over := time.UnixMicro(int64(entry.Time * 1e6)).Sub(r.begin)
		switch entry.Message {
		case "the store is back":
			outages = append(outages, Outage{over - time.Duration(entry.After*1e9) - inaccuracy, over})
		case "serving initial configuration":
			outages = append(outages, Outage{always, over})
		}
	}
}

// mayExcuse reports whether, because of an outage, a gateway may return the current refresh token again for its
// predecessor.
func (r Rules) mayExcuse(g grant, o Operation) bool {
	for _, outage := range r.Outages {
		near := g.rotated <= outage.Over && addUnlessNever(g.replaced, r.Grace) >= outage.Began
		if near && o.Call <= outage.Over+r.Grace {
			return true
		}
	}
	return false
}
