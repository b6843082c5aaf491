package main

import (
	"archive/tar"
	"compress/gzip"
	"io"
	"os"
)

// globalPatientSet is the file with terms of SNOMED CT in HL7's package.
const globalPatientSet = "package/ValueSet-snomed-intl-gps.json"

// writeSNOMED unpacks the Global Patient Set.
func writeSNOMED(definitions, from string, _ bool) error {
	file, err := os.Open(from)
	if err != nil {
		return err
	}
	defer file.Close()
	unzipped, err := gzip.NewReader(file)
	if err != nil {
		return err
	}
	for archive := tar.NewReader(unzipped); ; {
		header, err := archive.Next()
		if err != nil {
			return err // io.EOF: the package does not contain the file
		}
		if header.Name == globalPatientSet {
			text, err := io.ReadAll(archive)
			if err != nil {
				return err
			}
			return os.WriteFile(definitions, text, 0o600)
		}
	}
}
