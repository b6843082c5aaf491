package store

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"
)

// IssuerKey is the key of the entry that assigns a store to an issuer; see [AssignIssuer].
const IssuerKey = "issuer:mark"

// issuerLifetime is the lifetime of the assignment after the issuer's last start.
const issuerLifetime = 10 * 365 * 24 * time.Hour

// An OtherIssuerError means that a store contains the state of another issuer. This issuer would accept
// the other issuer's sessions and codes.
type OtherIssuerError struct {
	StoredIssuer    string // issuer to which the store is assigned
	RequestedIssuer string // issuer that tried to use the store
}

// Error implements error.
func (e *OtherIssuerError) Error() string {
	return fmt.Sprintf("the store has the state of the issuer %s, and cannot be used for %s", e.StoredIssuer, e.RequestedIssuer)
}

// An issuerMark is the entry under [IssuerKey].
type issuerMark struct {
	Issuer string `json:"issuer"`
	Made   string `json:"made,omitempty"` // random, so that a store that lost its mark gets a different one
}

// AssignIssuer assigns a store to an issuer for years and returns the entry, which is unchanged as long as
// the store loses no data. The error is an [OtherIssuerError] if the store is assigned to another
// issuer. A full store is left unchanged, because its contents are usable.
func AssignIssuer(ctx context.Context, s Store, issuer string) (mark []byte, err error) {
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

// markFor returns the existing mark or a new one.
func markFor(found []byte, issuer string) ([]byte, error) {
	held, err := FromJSON[issuerMark](found)
	switch {
	case err != nil:
		return nil, fmt.Errorf("the entry %s: %w", IssuerKey, err)
	case held == nil:
		return ToJSON(issuerMark{issuer, rand.Text()})
	case held.Issuer != issuer:
		return nil, &OtherIssuerError{StoredIssuer: held.Issuer, RequestedIssuer: issuer}
	}
	return found, nil
}
