package redisstore

import (
	"errors"
	"fmt"
)

// recordVersion is the first byte of an entry. The value follows. A gateway reads this version
// and the one before, so that gateways can be upgraded one by one; step.lua writes it.
const recordVersion = 1

var errNewer = errors.New("the entry was written by a newer version of caddy-fhir")

// valueOf returns the value in an entry.
func valueOf(record string) ([]byte, error) {
	if record == "" || record[0] != recordVersion {
		return nil, fmt.Errorf("%w: %.1q", errNewer, record)
	}
	return []byte(record[1:]), nil
}
