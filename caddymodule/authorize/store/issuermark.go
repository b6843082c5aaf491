package store

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"
)

// IssuerKey is the key of the entry that says whose state a store has; see [Claim].
const IssuerKey = "issuer:mark"

// issuerLifetime is how long a store is an issuer's after its last start.
const issuerLifetime = 10 * 365 * 24 * time.Hour

// An OtherIssuerError says that a store has the state of another issuer. What that one gave, such as a session or a code,
// would be taken for this one's.
type OtherIssuerError struct {
	Theirs string // the issuer that has the store
	Ours   string // the issuer that may not use it
}

// Error implements error.
func (e *OtherIssuerError) Error() string {
	return fmt.Sprintf("the store has the state of the issuer %s, and cannot be used for %s", e.Theirs, e.Ours)
}

// An issuerMark is the entry under [IssuerKey].
type issuerMark struct {
	Issuer string `json:"issuer"`
	Made   string `json:"made,omitempty"` // random: a store that lost its mark gets another
}

// Claim makes a store an issuer's, for years from now, if it is nobody's yet or already this one's, and returns the entry: it
// stays the same as long as the store loses nothing. If the store is another's, it returns an [OtherIssuerError]. A full store
// stays as it is, since what it has can be used.
func Claim(ctx context.Context, s Store, issuer string) (mark []byte, err error) {
	err = Alter(ctx, s, IssuerKey, issuerLifetime, func(found []byte) ([]byte, error) {
		mark, err = markFor(found, issuer)
		return mark, err
	})
	if err != nil {
		mark = nil
	}
	if errors.Is(err, ErrFull) {
		err = nil
	}
	return mark, err
}

// markFor is the mark that is found, or a new one if there is none.
func markFor(found []byte, issuer string) ([]byte, error) {
	held, err := FromJSON[issuerMark](found)
	switch {
	case err != nil:
		return nil, fmt.Errorf("the entry %s: %w", IssuerKey, err)
	case held == nil:
		return ToJSON(issuerMark{issuer, rand.Text()})
	case held.Issuer != issuer:
		return nil, &OtherIssuerError{Theirs: held.Issuer, Ours: issuer}
	}
	return found, nil
}
