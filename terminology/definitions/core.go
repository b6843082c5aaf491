package definitions

import (
	"bytes"
	"context"
	_ "embed"
	"fmt"

	"github.com/klauspost/compress/zstd"

	"github.com/caddy-fhir/caddy-fhir/terminology/internal/fhirjson"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/packed"
)

// coreDefinitions are the CodeSystem, ValueSet and ConceptMap resources of FHIR R4 and the bindings of its elements, as compressed
// NDJSON. core/SOURCE.md says where they are from and how they are made.
//
//go:generate go run ./core/generate -out core/r4.ndjson.zst core/package
//go:embed core/r4.ndjson.zst
var coreDefinitions []byte

// packed reads resources that the program brings along; nothing if there are none.
func (l *resourceLoader) packed(ctx context.Context, data []byte) error {
	if data == nil {
		return nil
	}
	if len(data) < 64<<10 {
		text, err := packed.Unpack(data)
		if err != nil {
			return fmt.Errorf("zstd: %w", err)
		}
		return l.resources(ctx, bytes.NewReader(text), fhirjson.NewShortage(maxShortInFile))
	}
	// One goroutine and a small window: everything else starts at the same time.
	src, err := zstd.NewReader(bytes.NewReader(data), zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true))
	if err != nil {
		return fmt.Errorf("zstd: %w", err)
	}
	defer src.Close()
	return l.resources(ctx, src, fhirjson.NewShortage(maxShortInFile))
}
