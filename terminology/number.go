package terminology

import (
	"errors"
	"strconv"
)

// number reads a non-negative integer.
func number(in *input) (*int, error) {
	// Bounded by 32 bits as FHIR's integer is, so that offset + count cannot overflow.
	n, err := strconv.ParseUint(in.value, 10, 31)
	if errors.Is(err, strconv.ErrRange) {
		return nil, badRequest("invalid", "the parameter %s is too large", in.name)
	}
	if err != nil {
		return nil, badRequest("invalid", "the parameter %s must be a whole number from 0 up", in.name)
	}
	result := int(n)
	return &result, nil
}
