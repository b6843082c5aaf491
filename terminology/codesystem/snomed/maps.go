package snomed

import (
	"cmp"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/terminology/codesystem"
	"github.com/caddy-fhir/caddy-fhir/terminology/definitions"
)

// mapSystems are the target code systems of map reference sets and the code systems of identifier schemes.
var mapSystems = map[sctid]string{
	447562003: "http://hl7.org/fhir/sid/icd-10", 999002271000000101: "http://hl7.org/fhir/sid/icd-10", 6011000124106: "http://hl7.org/fhir/sid/icd-10-cm",
	447563008: "http://hl7.org/fhir/sid/icd-9-cm", 446608001: "http://terminology.hl7.org/CodeSystem/icd-o-3", 900000000000497000: "http://read.info/ctv3",
	1126441000000105: "https://fhir.hl7.org.uk/Id/opcs-4", 30051010000102: "http://loinc.org",
}

// associationEquivalences are the equivalences of historical associations (Using SNOMED CT with HL7 Standards, R4 §4.2.5).
var associationEquivalences = map[sctid]string{
	900000000000523009: "inexact", 900000000000530003: "inexact", 900000000000526001: "equivalent", 900000000000527005: "equal",
}

// correlations are the equivalences of the column correlationId of complex and extended maps.
var correlations = map[sctid]string{
	447557004: "equivalent", 447558009: "narrower", 447559001: "wider", 447560006: "inexact", 447556008: "unmatched",
}

// fieldURI precedes the names of columns in the elements dependsOn and product.
const fieldURI = "http://snomed.info/field/"

// conceptMap returns an implicit concept map (Using SNOMED CT with HL7 Standards, R4 §4.2.5): [edition]?fhir_cm=[reference set].
func (s *snapshot) conceptMap(address string) (*definitions.ConceptMap, bool) {
	base, id, found := strings.Cut(address, "?fhir_cm=")
	version, ok := s.edition.versionOf(base)
	x := s.refset(id)
	if !found || !ok || x == nil {
		return nil, false
	}
	m := &mapReader{snapshot: s, refset: x, target: x.columnIndex("mapTarget"), correlation: x.columnIndex("correlationId"), advice: x.columnIndex("mapAdvice"), rule: x.columnIndex("mapRule")}
	number, _ := parseSCTID([]byte(id))
	system := mapSystems[number]
	if m.target < 0 {
		m.target, system, m.equivalence = x.columnIndex(associationColumn), URL, associationEquivalences[number]
	}
	if m.target < 0 {
		return nil, false
	}
	m.equivalence = cmp.Or(m.equivalence, "relatedto")
	cm := &definitions.ConceptMap{
		Definition: definitions.Definition{URL: address, Version: s.edition.versionURI(), Name: "SNOMED CT map " + id, Status: "active"},
		Groups:     []definitions.MapGroup{{Source: URL, SourceVersion: version, Target: system, Find: m.find}},
	}
	return cm, true
}

// mapReader finds the rows of a map or association reference set. The other fields are indexes of columns, or -1.
type mapReader struct {
	snapshot                          *snapshot
	refset                            *refset
	equivalence                       string // without a column correlationId
	target, correlation, advice, rule int
}

// find implements [definitions.MapGroup.Find].
func (m *mapReader) find(code string, reverse bool, spend func(steps int) error) ([]definitions.MapElement, error) {
	defer runtime.KeepAlive(m.snapshot)
	if !reverse {
		c, ok := m.snapshot.locate([]byte(code))
		if !ok {
			return nil, spend(1)
		}
		e := m.element(c.Number)
		return []definitions.MapElement{e}, spend(1 + len(e.Targets))
	}
	var list []definitions.MapElement
	last := none
	for row, component := range m.refset.component {
		if component != last && m.refset.active[row] && string(m.targetOf(row)) == code {
			last = component
			list = append(list, m.element(component))
		}
	}
	return list, spend(len(m.refset.component))
}

// element returns the mappings of a concept, by group and priority.
func (m *mapReader) element(concept uint32) definitions.MapElement {
	e := definitions.MapElement{Code: string(m.snapshot.code(concept)), Display: string(m.snapshot.term(concept))}
	from, to := m.refset.rowsOf(concept)
	var rows []int
	for row := from; row < to; row++ {
		if m.refset.active[row] {
			rows = append(rows, row)
		}
	}
	slices.SortStableFunc(rows, func(a, b int) int {
		return cmp.Or(cmp.Compare(m.integer(a, "mapGroup"), m.integer(b, "mapGroup")), cmp.Compare(m.integer(a, "mapPriority"), m.integer(b, "mapPriority")))
	})
	for _, row := range rows {
		e.Targets = append(e.Targets, m.targetElement(row))
	}
	return e
}

// targetElement returns the mapping in a row. The rule is a dependency, the group and priority are products, and the advice is a
// comment, because R4 has no properties of mappings.
func (m *mapReader) targetElement(row int) definitions.MapTarget {
	t := definitions.MapTarget{Code: string(m.targetOf(row)), Equivalence: m.equivalence, Comment: m.text(row, m.advice)}
	if m.correlation >= 0 {
		id, _ := parseSCTID([]byte(m.text(row, m.correlation)))
		t.Equivalence = cmp.Or(correlations[id], m.equivalence)
	}
	if m.refset.columns[m.target].kind == 'c' && m.refset.row(row)[m.target]&textCell == 0 {
		t.Display = string(m.snapshot.term(m.refset.row(row)[m.target]))
	}
	if rule := m.text(row, m.rule); rule != "" && rule != "TRUE" && rule != "OTHERWISE TRUE" {
		t.DependsOn = append(t.DependsOn, definitions.MapAttribute{Property: fieldURI + "mapRule", Value: rule})
	}
	for _, name := range []string{"mapGroup", "mapPriority"} {
		if n := m.integer(row, name); n > 0 {
			t.Products = append(t.Products, definitions.MapAttribute{Property: fieldURI + name, Value: strconv.Itoa(n)})
		}
	}
	return t
}

// targetOf returns the target code in a row; empty if the concept cannot be mapped.
func (m *mapReader) targetOf(row int) []byte {
	return m.snapshot.cellText(m.refset.row(row)[m.target], m.refset.columns[m.target].kind)
}

// text returns the text in a column of a row, or "" without this column.
func (m *mapReader) text(row, column int) string {
	if column < 0 {
		return ""
	}
	return string(m.snapshot.cellText(m.refset.row(row)[column], m.refset.columns[column].kind))
}

// integer returns the number in a column of a row, or 0 without this column.
func (m *mapReader) integer(row int, name string) int {
	column := m.refset.columnIndex(name)
	if column < 0 || m.refset.row(row)[column]&textCell != 0 {
		return 0
	}
	return int(m.refset.row(row)[column])
}

var _ codesystem.FormerTexts = (*System)(nil)
