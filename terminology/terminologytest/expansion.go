package terminologytest

import (
	"encoding/json"
	"fmt"
	"iter"
	"slices"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/terminology/expansion"
	"github.com/caddy-fhir/caddy-fhir/terminology/outcome"
)

// Expanded is a ValueSet as $expand returns it.
type Expanded struct {
	ResourceType string `json:"resourceType"` // ValueSet.resourceType
	URL          string `json:"url"`          // ValueSet.url
	Version      string `json:"version"`      // ValueSet.version
	Name         string `json:"name"`         // ValueSet.name
	Title        string `json:"title"`        // ValueSet.title
	Status       string `json:"status"`       // ValueSet.status
	Experimental *bool  `json:"experimental"` // ValueSet.experimental
	Language     string `json:"language"`     // ValueSet.language
	// Expansion is ValueSet.expansion.
	Expansion struct {
		Extension  []Extension `json:"extension"`
		Identifier string      `json:"identifier"`
		Timestamp  string      `json:"timestamp"`
		Total      *int        `json:"total"`
		Offset     *int        `json:"offset"`
		Parameter  []struct {
			Name         string  `json:"name"`
			ValueString  *string `json:"valueString"`
			ValueCode    *string `json:"valueCode"`
			ValueInteger *int    `json:"valueInteger"`
			ValueBoolean *bool   `json:"valueBoolean"`
			ValueURI     *string `json:"valueUri"`
			ValueDate    *string `json:"valueDateTime"`
		} `json:"parameter"`
		Contains []Entry `json:"contains"`
	} `json:"expansion"`
}

// Codes returns the codes of the answer, in order.
func (e Expanded) Codes() []string {
	codes := []string{}
	for _, c := range e.Expansion.Contains {
		codes = append(codes, c.Code)
	}
	return codes
}

// Parameters returns expansion.parameter as name=value.
func (e Expanded) Parameters() []string {
	list := []string{}
	for _, p := range e.Expansion.Parameter {
		switch {
		case p.ValueString != nil:
			list = append(list, p.Name+"="+*p.ValueString)
		case p.ValueURI != nil:
			list = append(list, p.Name+"="+*p.ValueURI)
		case p.ValueCode != nil:
			list = append(list, p.Name+"="+*p.ValueCode)
		case p.ValueDate != nil:
			list = append(list, p.Name+"="+*p.ValueDate)
		case p.ValueBoolean != nil:
			list = append(list, fmt.Sprintf("%s=%t", p.Name, *p.ValueBoolean))
		case p.ValueInteger != nil:
			list = append(list, fmt.Sprintf("%s=%d", p.Name, *p.ValueInteger))
		}
	}
	return list
}

// Entry is one of expansion.contains.
type Entry struct {
	Extension   []Extension      `json:"extension"`   // ValueSet.expansion.contains.extension
	System      string           `json:"system"`      // ValueSet.expansion.contains.system
	Version     string           `json:"version"`     // ValueSet.expansion.contains.version
	Abstract    bool             `json:"abstract"`    // ValueSet.expansion.contains.abstract
	Inactive    bool             `json:"inactive"`    // ValueSet.expansion.contains.inactive
	Code        string           `json:"code"`        // ValueSet.expansion.contains.code
	Display     string           `json:"display"`     // ValueSet.expansion.contains.display
	Designation []map[string]any `json:"designation"` // ValueSet.expansion.contains.designation
	Contains    []Entry          `json:"contains"`    // ValueSet.expansion.contains.contains
}

// Properties returns the properties of an entry as code=value.
func (c Entry) Properties() []string {
	list := []string{}
	for _, x := range c.Extension {
		if x.URL == "http://hl7.org/fhir/5.0/StructureDefinition/extension-ValueSet.expansion.contains.property" {
			v := x.Extension[1]
			list = append(list, x.Extension[0].ValueCode+"="+v.ValueCode+v.ValueString+string(v.ValueDecimal)+string(v.ValueInteger)+v.ValueDateTime)
		}
	}
	return list
}

// Extension is an extension of any kind.
type Extension struct {
	URL           string         `json:"url"`           // Extension.url
	ValueBoolean  bool           `json:"valueBoolean"`  // Extension.valueBoolean
	ValueString   string         `json:"valueString"`   // Extension.valueString
	ValueCode     string         `json:"valueCode"`     // Extension.valueCode
	ValueURI      string         `json:"valueUri"`      // Extension.valueUri
	ValueDecimal  json.Number    `json:"valueDecimal"`  // Extension.valueDecimal
	ValueInteger  json.Number    `json:"valueInteger"`  // Extension.valueInteger
	ValueDateTime string         `json:"valueDateTime"` // Extension.valueDateTime
	ValueCoding   map[string]any `json:"valueCoding"`   // Extension.valueCoding
	Extension     []Extension    `json:"extension"`     // Extension.extension
}

// WantCodes checks the codes of an answer, in order; want has spaces between them.
func WantCodes(t testing.TB, got Expanded, want string) {
	t.Helper()
	if codes := strings.Fields(want); !slices.Equal(got.Codes(), codes) {
		t.Errorf("got codes %q, want %q", got.Codes(), codes)
	}
}

// WantEntries checks the entries of an answer, each as code|version display flags.
func WantEntries(t testing.TB, got Expanded, want ...string) {
	t.Helper()
	var entries []string
	for _, c := range got.Expansion.Contains {
		entry := outcome.Canonical(c.Code, c.Version)
		if c.Display != "" {
			entry += " " + c.Display
		}
		if c.Abstract {
			entry += " abstract"
		}
		if c.Inactive {
			entry += " inactive"
		}
		entries = append(entries, entry)
	}
	if !slices.Equal(entries, want) {
		t.Errorf("got entries %q, want %q", entries, want)
	}
}

// Outline writes an expansion as code[display](properties){entries within}.
func Outline(contains []Entry) string {
	var b strings.Builder
	for i, c := range contains {
		if i > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(c.Code)
		if c.Display != "" {
			b.WriteString("[" + c.Display + "]")
		}
		if p := c.Properties(); len(p) > 0 {
			b.WriteString("(" + strings.Join(p, ",") + ")")
		}
		for _, d := range c.Designation {
			b.WriteString("<" + d["language"].(string) + ":" + d["value"].(string) + ">")
		}
		if len(c.Contains) > 0 {
			b.WriteString("{" + Outline(c.Contains) + "}")
		}
	}
	return b.String()
}

// Shown are the codes of an expansion, each as code=display.
func Shown(codes iter.Seq[expansion.Code]) string {
	var list []string
	for c := range codes {
		list = append(list, c.Code+"="+c.Display)
	}
	return strings.Join(list, ", ")
}
