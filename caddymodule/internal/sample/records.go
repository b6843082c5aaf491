package sample

import (
	"bytes"
	_ "embed"
)

//go:embed records.ndjson
var records []byte

// Records returns the synthetic records, those that others refer to first: thirty patients, and the people and
// organizations that look after them. Nobody in them exists. All have an id and a meta. Codes are of SNOMED CT, ICD-10-CM,
// LOINC, RxNorm, CVX and HL7's own systems; units are of UCUM.
func Records() [][]byte {
	return bytes.Split(bytes.TrimSuffix(records, []byte("\n")), []byte("\n"))
}
