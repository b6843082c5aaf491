package ucum

import (
	"bytes"
	_ "embed" // embeds the data
	"encoding/xml"
	"fmt"
	"io"
	"math/big"
	"sync"

	"github.com/caddy-fhir/caddy-fhir/terminology/internal/embeddedtable"
)

// compressedEssence is ucum-essence.xml, unmodified, as its license requires. See SOURCE.md.
//
//go:embed ucum-essence.xml.zst
var compressedEssence []byte

// maxEssenceSize is the maximum size of the decompressed file in bytes.
const maxEssenceSize = 1 << 20

// flagTrue is the value of a flag that is set.
const flagTrue = "yes"

// essence contains the prefixes and units that UCUM defines, by code.
type essence struct {
	prefixes map[string]*prefix
	units    map[string]*unit
}

// prefix is a metric prefix, such as kilo.
type prefix struct {
	Code  string `xml:"Code,attr"`
	Name  string `xml:"name"`
	Value struct {
		Number big.Rat `xml:"value,attr"`
	} `xml:"value"`
}

// unit is a unit with its definition and, once resolved, its measure in base units.
type unit struct {
	Code      string   `xml:"Code,attr"`
	Metric    string   `xml:"isMetric,attr"` // flagTrue if true, as in the next two fields
	Special   string   `xml:"isSpecial,attr"`
	Arbitrary string   `xml:"isArbitrary,attr"`
	Names     []string `xml:"name"` // never empty
	Property  string   `xml:"property"`
	Value     struct {
		definition
		Function *definition `xml:"function"`
	} `xml:"value"`

	measure *measure // nil until resolved
}

// definition is a multiple of another unit or expression.
type definition struct {
	Unit   string  `xml:"Unit,attr"`
	Number big.Rat `xml:"value,attr"`
}

// loadEssence returns the data, which is parsed on first use. Invalid data causes a panic; a test checks the data.
var loadEssence = sync.OnceValue(func() *essence {
	e, err := readEssence(compressedEssence)
	if err != nil {
		panic(fmt.Errorf("ucum-essence.xml: %w", err))
	}
	return e
})

func readEssence(data []byte) (*essence, error) {
	text, err := embeddedtable.Unpack(data)
	if err != nil {
		return nil, err
	}
	var file struct {
		Prefixes []*prefix `xml:"prefix"`
		Bases    []*unit   `xml:"base-unit"`
		Units    []*unit   `xml:"unit"`
	}
	d := xml.NewDecoder(io.LimitReader(bytes.NewReader(text), maxEssenceSize))
	d.CharsetReader = func(_ string, ascii io.Reader) (io.Reader, error) { return ascii, nil }
	if err := d.Decode(&file); err != nil {
		return nil, err
	}
	e := &essence{prefixes: map[string]*prefix{}, units: map[string]*unit{}}
	for _, p := range file.Prefixes {
		e.prefixes[p.Code] = p
	}
	for _, u := range file.Bases {
		e.units[u.Code] = u
		u.Metric, u.measure = flagTrue, baseMeasure(u)
	}
	for _, u := range file.Units {
		e.units[u.Code] = u
	}
	return e, e.resolve(file.Units)
}

// find returns the prefix (nil if there is none) and the unit of a symbol. The unit is nil if the symbol is unknown.
func (e *essence) find(symbol string) (*prefix, *unit) {
	if u := e.units[symbol]; u != nil {
		return nil, u
	}
	return e.findPrefixed(symbol)
}

// findPrefixed returns the prefix and the metric unit of a symbol, or nil if it does not consist of both.
func (e *essence) findPrefixed(symbol string) (*prefix, *unit) {
	for n := 1; n <= 2 && n < len(symbol); n++ {
		p, u := e.prefixes[symbol[:n]], e.units[symbol[n:]]
		if p != nil && u != nil && u.Metric == flagTrue {
			return p, u
		}
	}
	return nil, nil
}

// resolve computes the measure of each unit in base units. A definition may refer to units that are defined later.
func (e *essence) resolve(units []*unit) error {
	for _, u := range units {
		if err := e.resolveUnit(u); err != nil {
			return err
		}
	}
	return nil
}

func (e *essence) resolveUnit(u *unit) error {
	if u.measure != nil {
		return nil
	}
	d := u.Value.definition
	if u.Value.Function != nil {
		d = *u.Value.Function
	}
	if u.Arbitrary == flagTrue && d.Unit == "1" {
		u.measure = baseMeasure(u)
		return nil
	}
	parts, err := e.parse(d.Unit)
	if err != nil {
		return fmt.Errorf("unit %s: %w", u.Code, err)
	}
	for _, p := range parts { // definitions contain no parentheses
		if p.unit == nil {
			continue
		}
		if err := e.resolveUnit(p.unit); err != nil {
			return err
		}
	}
	m, ok := measureOf(parts)
	if !ok {
		return fmt.Errorf("the value of unit %s is too large", u.Code)
	}
	m.value.Mul(&m.value, &d.Number)
	u.measure = m
	return nil
}
