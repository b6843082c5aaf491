package fhirjson

import (
	"errors"

	"github.com/go-json-experiment/json/jsontext"
)

// ErrNoResourceType is returned for a JSON object that is no FHIR resource.
var ErrNoResourceType = errors.New("no resourceType: not a FHIR resource")

// ResourceType returns the type of a resource.
func ResourceType(resource jsontext.Value) (kind string, err error) {
	r := ReaderOf(resource)
	err = r.Object(func(name []byte) error {
		if string(name) == "resourceType" {
			if err := r.ReadString(&kind); err != nil {
				return err
			}
			return errFound
		}
		return r.Skip()
	})
	if errors.Is(err, errFound) {
		return kind, nil
	}
	if err == nil {
		err = ErrNoResourceType
	}
	return "", err
}

var errFound = errors.New("found")
