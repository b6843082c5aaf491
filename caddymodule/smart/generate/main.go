package main

import (
	"archive/zip"
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

// tables are what is made, by the file that it is written to.
var tables = map[string]func(*zip.Reader) ([]string, error){
	"../searchparam/elements.tsv": elementTable,
	"../searchparam/r4.tsv":       parameterTable,
	"../compartment/r4.tsv":       compartmentTable,
}

func main() {
	log.SetFlags(0)
	if len(os.Args) != 2 {
		log.Fatal("usage: generate hapi-fhir-validation-resources-r4.jar")
	}
	for file, table := range tables {
		if err := write(os.Args[1], file, table); err != nil {
			log.Fatal(err)
		}
	}
}

// write makes a table from an archive and writes its lines to a file.
func write(archive, file string, table func(*zip.Reader) ([]string, error)) error {
	jar, err := zip.OpenReader(archive)
	if err != nil {
		return err
	}
	defer jar.Close()
	lines, err := table(&jar.Reader)
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
