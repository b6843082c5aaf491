package store

import (
	"context"
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
}

// Claim makes a store an issuer's, for years from now, if it is nobody's yet or already this one's. If it is another's, it
// returns an [OtherIssuerError]. A full store stays as it is, since what it has can be used.
func Claim(ctx context.Context, s Store, issuer string) error {
	var err error
	for range claimTrials {
		err = claim(ctx, s, issuer)
		if !errors.Is(err, ErrExists) && !errors.Is(err, ErrChanged) {
			break
		}
	}
	if errors.Is(err, ErrFull) {
		return nil
	}
	return err
}

// claim looks first: a full store refuses a change before it tells what there is.
func claim(ctx context.Context, s Store, issuer string) error {
	found, err := s.Get(ctx, IssuerKey)
	if errors.Is(err, ErrNotFound) {
		mark, err := ToJSON(issuerMark{issuer})
		if err != nil {
			return err
		}
		return s.Add(ctx, IssuerKey, mark, issuerLifetime)
	}
	if err != nil {
		return err
	}
	held, err := FromJSON[issuerMark](found)
	if err != nil {
		return fmt.Errorf("the entry %s: %w", IssuerKey, err)
	}
	if held.Issuer != issuer {
		return &OtherIssuerError{Theirs: held.Issuer, Ours: issuer}
	}
	return s.Swap(ctx, IssuerKey, found, found, issuerLifetime)
}
