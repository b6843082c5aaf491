package main

import (
	"encoding/json"
	"log"
	"os"
	"path/filepath"

	"github.com/klauspost/compress/zstd"
)

// tables are the tables by the file that each is written to.
var tables = map[string]func(fetcher) (resource, error){
	"media-types.json.zst":   mediaTypes,
	"countries.json.zst":     countries,
	"subdivisions.json.zst":  subdivisions,
	"former.json.zst":        formerCountries,
	"currencies.json.zst":    currencies,
	"zones.json.zst":         zones,
	"areas.json.zst":         areas,
	"states.json.zst":        states,
	"vaccines.json.zst":      v2Table("0292"),
	"manufacturers.json.zst": v2Table("0227"),
	"patient-set.json.zst":   patientSet,
}

func main() {
	log.SetFlags(0)
	if len(os.Args) < 2 {
		log.Fatal("usage: generate file...")
	}
	folder, err := os.MkdirTemp("", "packages")
	if err != nil {
		log.Fatal(err)
	}
	for _, name := range os.Args[1:] {
		if err := generate(fetcher{folder}, name); err != nil {
			log.Printf("%s: %v", name, err)
			defer os.Exit(1)
		}
	}
	if err := os.RemoveAll(folder); err != nil {
		log.Print(err)
	}
}

// generate writes a table.
func generate(f fetcher, name string) error {
	table, err := tables[filepath.Base(name)](f)
	if err != nil {
		return err
	}
	packed, err := pack(table)
	if err != nil {
		return err
	}
	return os.WriteFile(name, packed, 0o644)
}

// pack returns a table as it is embedded.
func pack(table resource) ([]byte, error) {
	text, err := json.Marshal(table)
	if err != nil {
		return nil, err
	}
	encoder, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedBestCompression), zstd.WithEncoderConcurrency(1),
		zstd.WithWindowSize(zstd.MaxWindowSize>>6), zstd.WithEncoderCRC(true))
	if err != nil {
		return nil, err
	}
	return encoder.EncodeAll(text, nil), nil
}
