package keyring

import (
	"sync/atomic"
	"time"
)

// health is what is known of the stored keys.
type health struct {
	problem atomic.Pointer[problem] // nil: they are those in use
}

// problem is why the stored keys are not those in use.
type problem struct {
	err      error
	reported time.Time
}

// Problem says why the stored keys are not those in use, or could not be read; nil if all is
// well. It does not read the storage.
func (k *Keyring) Problem() error {
	if p := k.inUse.health.problem.Load(); p != nil {
		return p.err
	}
	return nil
}

// note keeps a problem, or that there is none, and reports whether to tell the operator: at
// first, and then as often as the keys would be read without being watched. Call it by one
// goroutine at a time.
func (h *health) note(err error) (tell bool) {
	if err == nil {
		h.problem.Store(nil)
		return false
	}
	p := &problem{err, time.Now()}
	last := h.problem.Load()
	if tell = last == nil || time.Since(last.reported) >= refresh; !tell {
		p.reported = last.reported
	}
	h.problem.Store(p)
	return tell
}
