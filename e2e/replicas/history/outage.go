package history

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"time"
)

// Outage is when a gateway could not answer. The grace of refresh tokens that were replaced in it, or within the grace
// before it, counts from its end.
type Outage struct {
	Began time.Duration // since the record began
	Over  time.Duration
}

// always is before anything that happened.
const always = -never

// inaccuracy is by how much a line of the log may be later than what it tells.
const inaccuracy = 100 * time.Millisecond

// Outages reads from a gateway's log when its store was away, and that it did not run before it started.
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
			continue // what else a server may write
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

// mayExcuse reports whether a gateway that had one of the outages gives the successor of the latest refresh token's
// predecessor again.
func (r Rules) mayExcuse(g grant, o Operation) bool {
	for _, outage := range r.Outages {
		near := g.rotated <= outage.Over && later(g.replaced, r.Grace) >= outage.Began
		if near && o.Call <= outage.Over+r.Grace {
			return true
		}
	}
	return false
}
