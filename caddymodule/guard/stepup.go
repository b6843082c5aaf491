package guard

import (
	"net/http"
	"strings"
	"time"
)

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
	return !t.AuthTime.IsZero() && age <= s.MaxAge && age >= -defaultLeeway
}
