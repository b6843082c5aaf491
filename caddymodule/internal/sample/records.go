package sample

import (
	"bytes"
	_ "embed"

	"github.com/klauspost/compress/zstd"
)

// compressed is records.ndjson, as go test -run TestRecordsCompressed -update writes it.
//
//go:embed records.ndjson.zst
var compressed []byte

// Records returns the synthetic records, those that others refer to first: thirty patients, and the people and
// organizations that look after them. Nobody in them exists. All have an id and a meta. Codes are of SNOMED CT, ICD-10-CM,
// LOINC, RxNorm, CVX and HL7's own systems; units are of UCUM.
func Records() ([][]byte, error) {
	decoder, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1))
	if err != nil {
		return nil, err
	}
	defer decoder.Close()
	lines, err := decoder.DecodeAll(compressed, nil)
	return bytes.Split(bytes.TrimSuffix(lines, []byte("\n")), []byte("\n")), err
}
