// Package generate builds the tables of license-free code systems from packages in public registries. A table is a CodeSystem
// resource reduced to the members that are needed, compressed with Zstandard. The output is deterministic. Each source has a
// command in its folder that reads its packages; this package contains the code that the commands share.
package generate

import (
	"cmp"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"slices"

	"github.com/klauspost/compress/zstd"
)

// Readers maps the file name of each table to the function that builds it.
type Readers map[string]func(Packages) (CodeSystem, error)

// Main writes all tables of a source to the current folder. It exits with status 1 on failure.
func (r Readers) Main() {
	log.SetFlags(0)
	folder, err := os.MkdirTemp("", "packages")
	if err != nil {
		log.Fatal(err)
	}
	err = r.Write(Packages{Folder: folder}, ".")
	if err := os.RemoveAll(folder); err != nil {
		log.Print(err)
	}
	if err != nil {
		log.Fatal(err)
	}
}

// Write writes the tables to folder.
func (r Readers) Write(p Packages, folder string) error {
	for name, read := range r {
		table, err := read(p)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		packed, err := table.pack()
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if err := os.WriteFile(filepath.Join(folder, name), packed, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// CodeSystem contains the members of a CodeSystem resource that a table needs.
type CodeSystem struct {
	ResourceType  string     `json:"resourceType"`       // always "CodeSystem"
	Language      string     `json:"language"`           // language of the displays
	CaseSensitive bool       `json:"caseSensitive"`      // codes are case-sensitive
	Property      []Property `json:"property,omitempty"` // declared properties
	Concept       []*Concept `json:"concept"`            // top-level concepts
}

// NewTable returns a table of concepts with English displays and case-sensitive codes.
func NewTable(concepts []*Concept, properties ...string) CodeSystem {
	r := CodeSystem{ResourceType: "CodeSystem", Language: "en", CaseSensitive: true, Concept: concepts}
	for _, code := range properties {
		r.Property = append(r.Property, Property{Code: code})
	}
	return r
}

// pack returns the table as compressed JSON.
func (r *CodeSystem) pack() ([]byte, error) {
	text, err := json.Marshal(r)
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

// Concept is a concept of a CodeSystem resource.
type Concept struct {
	Code        string        `json:"code"`                  // unique code
	Display     string        `json:"display,omitempty"`     // preferred name
	Designation []Designation `json:"designation,omitempty"` // other names
	Property    []Property    `json:"property,omitempty"`    // values of properties
	Concept     []*Concept    `json:"concept,omitempty"`     // child concepts
}

// Designation is another name of a concept.
type Designation struct {
	Language string `json:"language"` // BCP 47 language tag
	Value    string `json:"value"`    // text of the name
}

// Property is a property value of a concept. If it has no value, it declares a property of a CodeSystem.
type Property struct {
	Code         string `json:"code"`                   // code of the property
	ValueCode    string `json:"valueCode,omitempty"`    // empty if the value has another type
	ValueInteger *int   `json:"valueInteger,omitempty"` // nil if the value has another type
	ValueBoolean bool   `json:"valueBoolean,omitempty"` // false if the value has another type
}

// AddName adds a name in another language or an alternative English name.
func (c *Concept) AddName(language, value string) {
	if value != "" && (language != "en" || value != c.Display) {
		c.Designation = append(c.Designation, Designation{language, value})
	}
}

// ConceptsFromCodes returns a concept for each code, with the code as display.
func ConceptsFromCodes(codes []string) (concepts []*Concept) {
	for _, code := range codes {
		concepts = append(concepts, &Concept{Code: code, Display: code})
	}
	return concepts
}

// SortByCode sorts concepts by code in place and returns them.
func SortByCode(concepts []*Concept) []*Concept {
	slices.SortFunc(concepts, func(a, b *Concept) int { return cmp.Compare(a.Code, b.Code) })
	return concepts
}

// ParseConcepts returns a concept for each object in list, from its members code and name. parents maps codes to the value of
// the member parent.
func ParseConcepts(list []map[string]string) (concepts []*Concept, parents map[string]string) {
	parents = make(map[string]string)
	for _, o := range list {
		concepts = append(concepts, &Concept{Code: o["code"], Display: o["name"]})
		parents[o["code"]] = o["parent"]
	}
	return concepts, parents
}

// NestConcepts adds each concept to its parent and returns the sorted concepts that have no parent in the list.
func NestConcepts(concepts []*Concept, parents map[string]string) (roots []*Concept) {
	byCode := make(map[string]*Concept)
	for _, c := range SortByCode(concepts) {
		byCode[c.Code] = c
	}
	for _, c := range concepts {
		if p := byCode[parents[c.Code]]; p != nil {
			p.Concept = append(p.Concept, c)
		} else {
			roots = append(roots, c)
		}
	}
	return roots
}
