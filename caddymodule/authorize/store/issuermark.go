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

const (
	// issuerLifetime is how long a store is an issuer's after its last start.
	issuerLifetime = 10 * 365 * 24 * time.Hour

	claimTrials = 3 // of changes at once
)

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
	for range claimTrials {
		mark, err = claim(ctx, s, issuer)
		if !Lost(err) {
			break
		}
	}
	if errors.Is(err, ErrFull) {
		return nil, nil
	}
	return mark, err
}

// claim looks first: a full store refuses a change before it says what there is.
func claim(ctx context.Context, s Store, issuer string) ([]byte, error) {
	found, err := s.Get(ctx, IssuerKey)
	if errors.Is(err, ErrNotFound) {
		mark, err := ToJSON(issuerMark{issuer, rand.Text()})
		if err != nil {
			return nil, err
		}
		return mark, s.Add(ctx, IssuerKey, mark, issuerLifetime)
	}
	if err != nil {
		return nil, err
	}
	held, err := FromJSON[issuerMark](found)
	if err != nil {
		return nil, fmt.Errorf("the entry %s: %w", IssuerKey, err)
	}
	if held.Issuer != issuer {
		return nil, &OtherIssuerError{Theirs: held.Issuer, Ours: issuer}
	}
	return found, s.Swap(ctx, IssuerKey, found, found, issuerLifetime)
}
