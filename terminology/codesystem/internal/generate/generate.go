// Package generate makes the tables of code systems that need no licence out of packages of public registries: CodeSystem
// resources with nothing but what a table needs, compressed with Zstandard. The same packages give the same bytes. Each
// source has a command in its folder that reads its packages; what several sources share is here.
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

// Readers are the readers of a source's tables, by the file that each table is written to.
type Readers map[string]func(Packages) (CodeSystem, error)

// Main writes all tables of a source into the current folder, and exits with status 1 if one fails.
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

// Write writes the tables into a folder.
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

// CodeSystem is a CodeSystem resource, of which a table needs no more.
type CodeSystem struct {
	ResourceType  string     `json:"resourceType"`       // CodeSystem
	Language      string     `json:"language"`           // of the displays
	CaseSensitive bool       `json:"caseSensitive"`      // whether the case of codes counts
	Property      []Property `json:"property,omitempty"` // codes of properties
	Concept       []*Concept `json:"concept"`            // without those that are below another
}

// TableOf returns a table of concepts with English displays and case-sensitive codes.
func TableOf(concepts []*Concept, properties ...string) CodeSystem {
	r := CodeSystem{ResourceType: "CodeSystem", Language: "en", CaseSensitive: true, Concept: concepts}
	for _, code := range properties {
		r.Property = append(r.Property, Property{Code: code})
	}
	return r
}

// pack returns a table as it is embedded.
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
	Code        string        `json:"code"`                  // unique in the code system
	Display     string        `json:"display,omitempty"`     // the usual name
	Designation []Designation `json:"designation,omitempty"` // other names
	Property    []Property    `json:"property,omitempty"`    // values of properties
	Concept     []*Concept    `json:"concept,omitempty"`     // directly below
}

// Designation is another name of a concept.
type Designation struct {
	Language string `json:"language"` // BCP 47 tag
	Value    string `json:"value"`    // the name
}

// Property is a property of a concept with its value, or, without a value, one that a CodeSystem declares.
type Property struct {
	Code         string `json:"code"`                   // of the property
	ValueCode    string `json:"valueCode,omitempty"`    // empty: none
	ValueInteger *int   `json:"valueInteger,omitempty"` // nil: none
	ValueBoolean bool   `json:"valueBoolean,omitempty"` // false: none
}

// AddName adds a name in another language, or another English name.
func (c *Concept) AddName(language, value string) {
	if value != "" && (language != "en" || value != c.Display) {
		c.Designation = append(c.Designation, Designation{language, value})
	}
}

// Unnamed returns concepts that have no names but their codes.
func Unnamed(codes []string) (concepts []*Concept) {
	for _, code := range codes {
		concepts = append(concepts, &Concept{Code: code, Display: code})
	}
	return concepts
}

// Sorted sorts concepts by their codes.
func Sorted(concepts []*Concept) []*Concept {
	slices.SortFunc(concepts, func(a, b *Concept) int { return cmp.Compare(a.Code, b.Code) })
	return concepts
}

// Listed returns the objects of a list as concepts with the members code and name, in its order, and the codes of their
// parents, the members parent.
func Listed(list []map[string]string) (concepts []*Concept, parents map[string]string) {
	parents = make(map[string]string)
	for _, o := range list {
		concepts = append(concepts, &Concept{Code: o["code"], Display: o["name"]})
		parents[o["code"]] = o["parent"]
	}
	return concepts, parents
}

// Nested returns the concepts without a parent among them, sorted, and adds each of the rest to its parent.
func Nested(concepts []*Concept, parents map[string]string) (roots []*Concept) {
	byCode := make(map[string]*Concept)
	for _, c := range Sorted(concepts) {
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
