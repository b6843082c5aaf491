package parameters

import (
	"errors"
	"strconv"

	"github.com/caddy-fhir/caddy-fhir/terminology/outcome"
)

// Number reads a non-negative integer.
func Number(in *Input) (*int, error) {
	// Bounded by 32 bits as FHIR's integer is, so that offset + count cannot overflow.
	n, err := strconv.ParseUint(in.Value, 10, 31)
	if errors.Is(err, strconv.ErrRange) {
		return nil, outcome.BadRequest("invalid", "the parameter %s is too large", in.Name)
	}
	if err != nil {
		return nil, outcome.BadRequest("invalid", "the parameter %s must be a whole number from 0 up", in.Name)
	}
	result := int(n)
	return &result, nil
}
