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

// assignmentLifetime is how long a store stays assigned to an issuer (see [IssuerKey]) after the issuer last started.
const assignmentLifetime = 10 * 365 * 24 * time.Hour

// An IssuerMismatchError means that a store contains the data of another issuer. If it were used, this issuer would accept the
// other issuer's sessions and codes.
type IssuerMismatchError struct {
	StoredIssuer    string // issuer to which the store is assigned
	RequestedIssuer string // issuer that tried to use the store
}

// Error implements error.
func (e *IssuerMismatchError) Error() string {
	return fmt.Sprintf("store belongs to issuer %s and cannot be used for issuer %s", e.StoredIssuer, e.RequestedIssuer)
}

// An issuerMark is the value stored under [IssuerKey].
type issuerMark struct {
	Issuer string `json:"issuer"`
	Nonce  string `json:"made,omitempty"` // random, so that a store that has lost its mark gets a different one
}

// AssignIssuer assigns a store to an issuer for years and returns the stored mark. The mark remains the same as long as the
// store loses no data. The error is an [IssuerMismatchError] if the store is assigned to another issuer. If the store is full,
// the assignment is not renewed, but there is no error, because its data can be used.
func AssignIssuer(ctx context.Context, s Store, issuer string) (mark []byte, err error) {
	err = UpdateValue(ctx, s, IssuerKey, assignmentLifetime, func(found []byte) ([]byte, error) {
		mark, err = ensureMark(found, issuer)
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

// ensureMark returns the mark in found, or a new one if found is nil.
func ensureMark(found []byte, issuer string) ([]byte, error) {
	mark, err := FromJSON[issuerMark](found)
	switch {
	case err != nil:
		return nil, fmt.Errorf("reading store entry %s: %w", IssuerKey, err)
	case mark == nil:
		return ToJSON(issuerMark{issuer, rand.Text()})
	case mark.Issuer != issuer:
		return nil, &IssuerMismatchError{StoredIssuer: mark.Issuer, RequestedIssuer: issuer}
	}
	return found, nil
}
