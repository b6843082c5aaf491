package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/klauspost/compress/zstd"
)

// bundles are the files that are read, in this order, below the folder of the package.
var bundles = []string{
	"dist/fhir/r4/valuesets.json",
	"dist/fhir/r4/v2-tables.json",
	"dist/fhir/r4/v3-codesystems.json",
	"dist/fhir/r4/conceptmaps.json",
	"dist/fhir/r4/profiles-types.json",
	"dist/fhir/r4/profiles-resources.json",
}

func main() {
	log.SetFlags(0)
	out := flag.String("out", "r4.ndjson.zst", "file to write")
	flag.Parse()
	if flag.NArg() != 1 {
		log.Fatal("usage: generate [-out file] folder-of-the-unpacked-npm-package")
	}
	if err := generate(flag.Arg(0), *out); err != nil {
		log.Fatal(err)
	}
}

// generate writes the file out from the package in a folder.
func generate(folder, out string) error {
	var lines bytes.Buffer
	for _, name := range bundles {
		if err := appendBundle(&lines, filepath.Join(folder, name)); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	encoder, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedBestCompression), zstd.WithEncoderConcurrency(1),
		zstd.WithWindowSize(1<<20), zstd.WithEncoderCRC(true))
	if err != nil {
		return fmt.Errorf("zstd: %w", err)
	}
	return os.WriteFile(out, encoder.EncodeAll(lines.Bytes(), nil), 0o644)
}

// appendBundle appends the stripped resources of a Bundle, each on a line.
func appendBundle(lines *bytes.Buffer, name string) error {
	data, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	var bundle struct {
		Entry []struct {
			Resource json.RawMessage `json:"resource"`
		} `json:"entry"`
	}
	if err := json.Unmarshal(data, &bundle); err != nil {
		return err
	}
	for i, entry := range bundle.Entry {
		if err := appendResource(lines, entry.Resource); err != nil {
			return fmt.Errorf("entry %d: %w", i, err)
		}
	}
	return nil
}
