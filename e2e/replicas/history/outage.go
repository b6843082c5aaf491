package history

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"time"
)

// Outage is a period in which a gateway could not respond. If a refresh token was replaced during the outage, or within the
// grace period before it, its grace period starts at the end of the outage.
type Outage struct {
	Began time.Duration // time since the start of the record
	Over  time.Duration
}

// always is earlier than the time of any operation.
const always = -never

// inaccuracy is the maximum delay between an event and its log line.
const inaccuracy = 100 * time.Millisecond

// Outages returns the outages of the store in a gateway's log, and the times before the gateway's starts.
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
			continue // the line is not JSON
		}
		over := time.UnixMicro(int64(entry.Time * 1e6)).Sub(r.begin)
		switch entry.Message {
		case "store available again":
			outages = append(outages, Outage{over - time.Duration(entry.After*1e9) - inaccuracy, over})
		case "serving initial configuration":
			outages = append(outages, Outage{always, over})
		}
	}
}

// mayExcuse reports whether a gateway may, because of an outage, return the current refresh token again in response to its
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
