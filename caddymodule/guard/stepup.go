package guard

import (
	"fmt"
	"net/http"
	"strings"
	"time"
)

// StepUp is what is asked of how the person signed in (RFC 9470). The zero value asks nothing.
type StepUp struct {
	// ACR are the classes of sign-in (acr) that suffice, the preferred one first. Empty: any, or none.
	ACR []string
	// MaxAge is how long ago the person may have signed in (auth_time). 0: for any time.
	MaxAge time.Duration
	// Meets reports whether a token's class suffices where another is asked for. Nil: it must be the same.
	Meets func(t *Token, wanted string) bool
}

// Check refuses a token whose person did not sign in like that, or that does not say so (401, [ErrStepUp]).
func (s *StepUp) Check(t *Token, now time.Time) error {
	var lacks []string
	if len(s.ACR) > 0 && !s.meets(t) {
		lacks = append(lacks, "a stronger sign-in")
	}
	if s.MaxAge > 0 && !s.isRecent(t, now) {
		lacks = append(lacks, "a more recent sign-in")
	}
	if len(lacks) == 0 {
		return nil
	}
	return &Error{
		Status: http.StatusUnauthorized, Code: codeStepUp, StepUp: s, Err: ErrStepUp,
		Description: "This takes " + strings.Join(lacks, " and ") + ".",
	}
}

func (s *StepUp) meets(t *Token) bool {
	for _, wanted := range s.ACR {
		if t.ACR != "" && (t.ACR == wanted || s.Meets != nil && s.Meets(t, wanted)) {
			return true
		}
	}
	return false
}

// isRecent reports whether the sign-in was within the maximum age. One of the future says nothing of when it was.
func (s *StepUp) isRecent(t *Token, now time.Time) bool {
	age := now.Sub(t.AuthTime)
	return !t.AuthTime.IsZero() && age <= s.MaxAge && age >= -DefaultLeeway
}

// challenge are the attributes of RFC 9470 §3: all that is asked, whichever part is not met.
func (s *StepUp) challenge() (attributes string) {
	if s == nil {
		return ""
	}
	if len(s.ACR) > 0 {
		attributes += ", acr_values=" + quoted(strings.Join(s.ACR, " "))
	}
	if s.MaxAge > 0 {
		attributes += fmt.Sprintf(`, max_age="%d"`, int64(s.MaxAge.Seconds()))
	}
	return attributes
}
