package main

import (
	"archive/zip"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"strings"
)

// Where the definitions lie in the archives.
const (
	parametersFile = "org/hl7/fhir/r4/model/sp/search-parameters.json"
	typesFile      = "org/hl7/fhir/r4/model/profile/profiles-types.xml"
	resourcesFile  = "org/hl7/fhir/r4/model/profile/profiles-resources.xml"
	valueSetsFile  = "org/hl7/fhir/r4/model/valueset/valuesets.xml"
)

func main() {
	log.SetFlags(0)
	elements := flag.String("elements", "", "file to write the elements to")
	parameters := flag.String("parameters", "", "file to write the search parameters to")
	compartments := flag.String("compartments", "", "file to write the compartments to")
	flag.Parse()
	if flag.NArg() != 1 {
		log.Fatal("usage: generate [-elements file] [-parameters file] [-compartments file] hapi-fhir-validation-resources-r4.jar")
	}
	if err := run(flag.Arg(0), *elements, *parameters, *compartments); err != nil {
		log.Fatal(err)
	}
}

// run writes the table, or tables, that are asked for from an archive.
func run(archive, elements, parameters, compartments string) error {
	jar, err := zip.OpenReader(archive)
	if err != nil {
		return err
	}
	defer jar.Close()
	for _, t := range []struct {
		file string
		make func(*zip.Reader) ([]string, error)
	}{{elements, elementTable}, {parameters, parameterTable}, {compartments, compartmentTable}} {
		if t.file == "" {
			continue
		}
		if err := writeTable(t.file, &jar.Reader, t.make); err != nil {
			return err
		}
	}
	return nil
}

// writeTable makes a table and writes its lines to a file.
func writeTable(file string, jar *zip.Reader, table func(*zip.Reader) ([]string, error)) error {
	lines, err := table(jar)
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	return os.WriteFile(file, []byte(strings.Join(lines, "\n")+"\n"), 0o644)
}

// read returns a file of the archive.
func read(jar *zip.Reader, name string) ([]byte, error) {
	file, err := jar.Open(name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return io.ReadAll(file)
}
