// Package snomedtest writes synthetic editions of SNOMED CT in Release Format 2, for tests and benchmarks. The metadata has the
// identifiers that the format prescribes. All other identifiers and all terms are invented.
package snomedtest

import (
	"archive/zip"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
)

// Edition describes a synthetic edition. The same description always yields the same files.
type Edition struct {
	// Concepts is the number of concepts besides the metadata. A concept has on average 3 descriptions, 1.4 parents and 2.2
	// attributes. One of twelve is inactive.
	Concepts int

	// Date is the date of the version. Default: 20260801.
	Date string

	// Swedish adds Swedish descriptions of every concept, and moves a tenth of the concepts to the Swedish module.
	Swedish bool

	// Identifiers adds a concept for the scheme LOINC, and alternate identifiers of a tenth of the concepts.
	Identifiers bool

	// WithoutConcepts leaves out all rows.
	WithoutConcepts bool
}

// Identifiers of components that every edition contains.
const (
	Root             = "138875005"
	ClinicalFinding  = "404684003"
	FindingSite      = "363698007"
	AssociatedWith   = "47429007"
	Strength         = "1142135004" // has concrete values
	SimpleRefset     = "723264001"
	ICD10Map         = "447562003"
	CTV3Map          = "900000000000497000"
	ReplacedBy       = "900000000000526001"
	InactivationRows = "900000000000489007"
	LOINCScheme      = "30051010000102"
	SwedishModule    = "45991000052106"
	SwedishRefset    = "46011000052107"
	coreModule       = "900000000000207008"
	metadataModule   = "900000000000012004"
)

// metadata are the concepts that the format prescribes, each with its parent and term.
var metadata = [][3]string{
	{Root, "", "SNOMED CT Concept"},
	{"900000000000441003", Root, "Model component"},
	{"106237007", "900000000000441003", "Linkage concept"},
	{"116680003", "106237007", "Is a"},
	{"410662002", "106237007", "Concept model attribute"},
	{FindingSite, "410662002", "Finding site"},
	{AssociatedWith, "410662002", "Associated with"},
	{Strength, "410662002", "Strength value"},
	{"900000000000455006", "900000000000441003", "Reference set"},
	{SimpleRefset, "900000000000455006", "Simple reference set"},
	{ICD10Map, "900000000000455006", "Extended map reference set"},
	{CTV3Map, "900000000000455006", "Simple map reference set"},
	{ReplacedBy, "900000000000455006", "Replaced by association reference set"},
	{InactivationRows, "900000000000455006", "Inactivation indicator reference set"},
	{"900000000000534007", "900000000000455006", "Module dependency reference set"},
	{"900000000000509007", "900000000000455006", "US English"},
	{"900000000000508004", "900000000000455006", "GB English"},
	{"900000000000443000", "900000000000441003", "Module"},
	{coreModule, "900000000000443000", "Core module"},
	{metadataModule, "900000000000443000", "Model component module"},
	{"900000000000482003", "900000000000441003", "Duplicate"},
	{ClinicalFinding, Root, "Clinical finding"},
}

// metadata returns the concepts of the edition before those with invented identifiers.
func (e Edition) metadata() [][3]string {
	if e.Identifiers {
		return append(metadata, [3]string{LOINCScheme, "900000000000441003", "LOINC code identifier"})
	}
	return metadata
}

// SCTID returns the identifier with an item number and a partition (00 concept, 01 description, 02 relationship).
func SCTID(item int, partition string) string {
	digits := fmt.Sprintf("%d%s", item, partition)
	return digits + string('0'+verhoeff(digits))
}

// multiply and permute are the tables of Verhoeff's check digit: multiplication in the dihedral group D5, and a permutation.
var (
	multiply = [10]string{"0123456789", "1234067895", "2340178956", "3401289567", "4012395678", "5987604321", "6598710432", "7659821043", "8765932104", "9876543210"}
	permute  = [8]string{"0123456789", "1576283094", "5803796142", "8916043527", "9453126870", "4286573901", "2793806415", "7046913258"}
	inverse  = "0432156789"
)

func verhoeff(digits string) byte {
	check := byte(0)
	for i := range len(digits) {
		digit := digits[len(digits)-1-i] - '0'
		check = multiply[check][permute[(i+1)%8][digit]-'0'] - '0'
	}
	return inverse[check] - '0'
}

// Concept returns the identifier of the i-th concept after the metadata.
func Concept(i int) string { return SCTID(2_000_000+i, "00") }

// WriteZip writes the edition to a zip archive.
func (e Edition) WriteZip(name string) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	defer f.Close()
	archive := zip.NewWriter(f)
	if err := e.write(archive.Create); err != nil {
		return err
	}
	return archive.Close()
}

// WriteFolder writes the edition to a folder.
func (e Edition) WriteFolder(folder string) error {
	var last *os.File
	err := e.write(func(name string) (_ io.Writer, err error) {
		if err := last.Close(); last != nil && err != nil {
			return nil, err
		}
		name = filepath.Join(folder, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			return nil, err
		}
		last, err = os.Create(name)
		return last, err
	})
	if err != nil {
		return err
	}
	return last.Close()
}

// write writes all files. create is called for each file after the previous one is complete.
func (e Edition) write(create func(name string) (io.Writer, error)) error {
	if e.Date == "" {
		e.Date = "20260801"
	}
	place, folder := "INT", "SnomedCT_Synthetic/Snapshot/"
	if e.Swedish {
		place = "SE1000052"
	}
	const component = "id\teffectiveTime\tactive\tmoduleId\t"
	const member = component + "refsetId\treferencedComponentId"
	const relationship = "\trelationshipGroup\ttypeId\tcharacteristicTypeId\tmodifierId"
	for _, file := range []struct {
		name, header string
		rows         func(w *writer, c *concept)
	}{
		{"Terminology/sct2_Concept_Snapshot", component + "definitionStatusId", (*writer).concept},
		{"Terminology/sct2_Description_Snapshot-en", component + "conceptId\tlanguageCode\ttypeId\tterm\tcaseSignificanceId", (*writer).descriptions},
		{"Terminology/sct2_TextDefinition_Snapshot-en", component + "conceptId\tlanguageCode\ttypeId\tterm\tcaseSignificanceId", (*writer).definitions},
		{"Terminology/sct2_Relationship_Snapshot", component + "sourceId\tdestinationId" + relationship, (*writer).relationships},
		{"Terminology/sct2_RelationshipConcreteValues_Snapshot", component + "sourceId\tvalue" + relationship, (*writer).concreteValues},
		{"Terminology/sct2_Identifier_Snapshot", "alternateIdentifier\teffectiveTime\tactive\tmoduleId\tidentifierSchemeId\treferencedComponentId", (*writer).identifiers},
		{"Refset/Language/der2_cRefset_LanguageSnapshot-en", member + "\tacceptabilityId", (*writer).languages},
		{"Refset/Content/der2_Refset_SimpleSnapshot", member, (*writer).simple},
		{"Refset/Content/der2_cRefset_AssociationSnapshot", member + "\ttargetComponentId", (*writer).associations},
		{"Refset/Content/der2_cRefset_AttributeValueSnapshot", member + "\tvalueId", (*writer).inactivations},
		{"Refset/Map/der2_sRefset_SimpleMapSnapshot", member + "\tmapTarget", (*writer).simpleMap},
		{"Refset/Map/der2_iisssccRefset_ExtendedMapSnapshot", member + "\tmapGroup\tmapPriority\tmapRule\tmapAdvice\tmapTarget\tcorrelationId\tmapCategoryId", (*writer).extendedMap},
		{"Refset/Metadata/der2_ssRefset_ModuleDependencySnapshot", member + "\tsourceEffectiveTime\ttargetEffectiveTime", (*writer).dependencies},
	} {
		out, err := create(folder + file.name + "_" + place + "_" + e.Date + ".txt")
		if err != nil {
			return err
		}
		w := &writer{edition: e, out: out}
		w.line(file.header)
		for i := range len(e.metadata()) + e.Concepts {
			if e.WithoutConcepts {
				break
			}
			c := e.conceptAt(i)
			file.rows(w, &c)
		}
		w.flush()
		if w.err != nil {
			return fmt.Errorf("%s: %w", file.name, w.err)
		}
	}
	return nil
}

// concept is a row of the concept file with the data for rows of other files.
type concept struct {
	index            int // among all concepts
	number           int // among the concepts after the metadata; negative for the metadata
	id, module, term string
	parents          []int
	active, defined  bool
	random           *rand.Rand // source of other data; yields the same sequence in each file
}

// conceptAt returns a concept of the edition. Its parents have a quarter to a half of its number, so that the hierarchy is as
// deep and wide as that of a real edition.
func (e Edition) conceptAt(i int) concept {
	metadata := e.metadata()
	if i < len(metadata) {
		return concept{index: i, number: -1, id: metadata[i][0], term: metadata[i][2], module: coreModule, active: true, random: rand.New(rand.NewPCG(1, uint64(i)))}
	}
	n := i - len(metadata)
	c := concept{index: i, number: n, id: Concept(n), module: coreModule, random: rand.New(rand.NewPCG(2, uint64(n)))}
	c.active, c.defined = n == activeAt(n), c.random.IntN(2) == 0
	if e.Swedish && n%10 == 9 {
		c.module = SwedishModule
	}
	c.term = term(c.random)
	for range 1 + c.random.IntN(5)/3 {
		if parent := activeAt(n/5 + c.random.IntN(n/4+1)); parent < n {
			c.parents = append(c.parents, parent)
		}
	}
	return c
}

// activeAt returns n, or the number before n if concept n is inactive.
func activeAt(n int) int {
	if n%12 == 11 {
		return n - 1
	}
	return n
}

// syllables form the words of terms.
var syllables = strings.Fields("ar ba co de em fi gas hep in ju kar lo me neu os per qui ren sta tor ul ve xan yl zo dys hyp itis oma osis ectomy graphy al ic ous")

// vocabulary is the number of words of all terms.
const vocabulary = 30_000

// term returns a term of two to six words. Few words are frequent, as in natural language.
func term(random *rand.Rand) string {
	var words []string
	for range 2 + random.IntN(3) + random.IntN(3) {
		n := uint64(math.Exp(random.Float64() * math.Log(vocabulary))) // Zipf's law
		source := rand.New(rand.NewPCG(3, n))
		var word strings.Builder
		for range 2 + source.IntN(3) {
			word.WriteString(syllables[source.IntN(len(syllables))])
		}
		words = append(words, word.String())
	}
	text := strings.Join(words, " ")
	return strings.ToUpper(text[:1]) + text[1:]
}
