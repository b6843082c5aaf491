package main

import (
	"archive/tar"
	"compress/gzip"
	"io"
	"os"
)

// globalPatientSet is the path of the Global Patient Set of SNOMED CT in HL7's package.
const globalPatientSet = "package/ValueSet-snomed-intl-gps.json"

// writeSNOMED extracts the Global Patient Set from HL7's package.
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
			return err // io.EOF means that the package does not contain the file
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
