// Package loinctest writes synthetic releases of LOINC, for tests and benchmarks. All codes and names are invented. The files and
// columns are those of the publisher.
package loinctest

import (
	"archive/zip"
	"errors"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Release describes a synthetic release. The same description always yields the same files.
type Release struct {
	// Terms is the number of terms. One of 25 is deprecated and one of 50 is discouraged. Each twentieth has answers.
	Terms int

	// Parts is the number of parts in addition to the classes.
	Parts int

	// Languages are the languages with a variant, such as deDE.
	Languages []string
}

// Code returns a code with a prefix, a number and its check digit (mod 10).
func Code(prefix string, number int) string {
	sum := 0
	digits := strconv.Itoa(number)
	for i := range len(digits) {
		digit := int(digits[len(digits)-1-i] - '0')
		if i%2 == 0 {
			digit *= 2
		}
		sum += digit/10 + digit%10
	}
	return prefix + digits + "-" + strconv.Itoa((10-sum%10)%10)
}

// Term returns the code of a term.
func Term(i int) string { return Code("", 1000+i) }

// Part returns the code of a part.
func Part(i int) string { return Code("LP", 10_000+i) }

// Class returns the code of the part of a class.
func Class(i int) string { return Code("LP", 7+i) }

// List returns the code of an answer list.
func List(i int) string { return Code("LL", 100+i) }

// Answer returns the code of an answer.
func Answer(i int) string { return Code("LA", 30+i) }

// Group returns the code of a group.
func Group(i int) string { return Code("LG", 50+i) }

// Numbers of concepts of which each term has one, and of answers of a list.
const (
	classes     = 40
	answers     = 5
	termsOfList = 20
)

// WriteZip writes the release to a zip archive.
func (r Release) WriteZip(name string) (err error) {
	folder, err := os.MkdirTemp(filepath.Dir(name), "release")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(folder)) }()
	if err := r.WriteFolder(folder); err != nil {
		return err
	}
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	archive := zip.NewWriter(f)
	return errors.Join(archive.AddFS(os.DirFS(folder)), archive.Close(), f.Close())
}

// WriteFolder writes the release to a folder.
func (r Release) WriteFolder(folder string) error {
	for _, file := range r.files() {
		name := filepath.Join(folder, filepath.FromSlash(file.name))
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			return err
		}
		w := &writer{}
		w.row(strings.Fields(file.header)...)
		for i := range file.rows {
			file.write(w, i)
		}
		if err := os.WriteFile(name, w.buffer, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// file is a file of a release. write writes the i-th of its rows, which may be several lines.
type file struct {
	name, header string
	rows         int
	write        func(w *writer, i int)
}

func (r Release) files() []file {
	const accessory = "AccessoryFiles/"
	list := []file{
		{"LoincTable/Loinc.csv", "LOINC_NUM COMPONENT PROPERTY TIME_ASPCT SYSTEM SCALE_TYP METHOD_TYP CLASS VersionLastChanged DefinitionDescription STATUS CLASSTYPE " +
			"RELATEDNAMES2 SHORTNAME ORDER_OBS EXTERNAL_COPYRIGHT_NOTICE EXAMPLE_UCUM_UNITS LONG_COMMON_NAME COMMON_TEST_RANK VersionFirstReleased DisplayName", r.Terms, r.term},
		{accessory + "PartFile/Part.csv", "PartNumber PartTypeName PartName PartDisplayName Status", classes + r.Parts, r.part},
		{accessory + "PartFile/LoincPartLink_Primary.csv", "LoincNumber LongCommonName PartNumber PartName PartCodeSystem PartTypeName LinkTypeName Property", r.Terms, r.primaryLinks},
		{accessory + "PartFile/LoincPartLink_Supplementary.csv", "LoincNumber LongCommonName PartNumber PartName PartCodeSystem PartTypeName LinkTypeName Property", r.Terms, r.supplementaryLinks},
		{accessory + "AnswerFile/AnswerList.csv", "AnswerListId AnswerListName ExtDefinedYN AnswerStringId SequenceNumber DisplayText Description", r.Terms / termsOfList, r.answers},
		{accessory + "AnswerFile/LoincAnswerListLink.csv", "LoincNumber LongCommonName AnswerListId AnswerListName AnswerListLinkType", r.Terms / termsOfList, r.answerLink},
		{accessory + "GroupFile/ParentGroup.csv", "ParentGroupId ParentGroup Status", 1, func(w *writer, _ int) { w.row(Group(0), "All groups", "ACTIVE") }},
		{accessory + "GroupFile/Group.csv", "ParentGroupId GroupId Group Archetype Status", r.Terms / 50, func(w *writer, i int) {
			w.row(Group(0), Group(1+i), "Group "+strconv.Itoa(i), "", "ACTIVE")
		}},
		{accessory + "GroupFile/GroupLoincTerms.csv", "Category GroupId Archetype LoincNumber LongCommonName", r.Terms / 50 * 4, func(w *writer, i int) {
			w.row("", Group(1+i/4), "", Term(i), "")
		}},
		{accessory + "PanelsAndForms/PanelsAndForms.csv", "ParentId ParentLoinc ParentName ID SEQUENCE Loinc LoincName", r.Terms / 100 * 6, func(w *writer, i int) {
			w.row("1", Term(i/6*100), "", strconv.Itoa(i), strconv.Itoa(i%6), Term(i/6*100+i%6), "")
		}},
		{accessory + "ComponentHierarchyBySystem/ComponentHierarchyBySystem.csv", "PATH_TO_ROOT SEQUENCE IMMEDIATE_PARENT CODE CODE_TEXT", classes + r.Parts/2 + r.Terms, r.hierarchy},
		{accessory + "ConsumerName/ConsumerName.csv", "LoincNumber ConsumerName", r.Terms, func(w *writer, i int) {
			w.row(Term(i), "Consumer "+r.component(i)+", "+systems[i%len(systems)])
		}},
	}
	for number, language := range r.Languages {
		name := accessory + "LinguisticVariants/" + language + strconv.Itoa(5+number) + "LinguisticVariant.csv"
		list = append(list, file{name, "LOINC_NUM COMPONENT PROPERTY TIME_ASPCT SYSTEM SCALE_TYP METHOD_TYP CLASS SHORTNAME LONG_COMMON_NAME RELATEDNAMES2 LinguisticVariantDisplayName", r.Terms, r.variant(language, number)})
	}
	return list
}

// Values of the axes except the component.
var (
	properties = strings.Fields("MCnc SCnc NFr PrThr Susc Imp Find Type")
	systems    = strings.Fields("Ser/Plas Bld Urine CSF ^Patient Isolate Tiss Stool Saliva")
	scales     = strings.Fields("Qn Ord Nom Doc Nar")
	methods    = []string{"", "IA", "Culture", "Probe.amp.tar"}
)

// values are the values of the axes from PROPERTY to METHOD_TYP, of which the parts have the numbers from 0.
var values = append(append(append(append([]string{"Pt"}, properties...), systems...), scales...), methods[1:]...)

func (r Release) axes(i int) []string {
	return []string{properties[i%len(properties)], "Pt", systems[i%len(systems)], scales[i/3%len(scales)], methods[i/7%len(methods)]}
}

// componentPart returns the number of the part with the component of a term. Some parts are components of many terms.
func (r Release) componentPart(i int) int {
	return len(values) + int(math.Exp(random(1, i).Float64()*math.Log(float64(r.Parts-len(values)))))
}

func (r Release) component(i int) string { return words(r.componentPart(i), 3) }

func (r Release) longName(i int) string {
	axes := r.axes(i)
	return "Measured " + r.component(i) + " [" + axes[0] + "/volume] in " + axes[2] + " by " + axes[4] + " method"
}

// className returns the name of a class.
func className(i int) string {
	return "CLASS." + strings.ToUpper(syllables[i%len(syllables)]) + strconv.Itoa(i)
}

func (r Release) term(w *writer, i int) {
	axes, status, notice, rank := r.axes(i), "ACTIVE", "", "0"
	switch {
	case i%25 == 24:
		status = "DEPRECATED"
	case i%50 == 48:
		status = "DISCOURAGED"
	case i%10 == 7:
		notice = "Copyright © of publisher " + strconv.Itoa(i%1000)
	case i%5 == 1:
		rank = strconv.Itoa(1 + i/5)
	}
	class := i % classes
	related := strings.ReplaceAll(words(i, 22), " ", "; ")
	w.row(Term(i), r.component(i), axes[0], axes[1], axes[2], axes[3], axes[4], className(class), "2.99", "", status, strconv.Itoa(1+class%4),
		related, r.component(i)+" "+axes[2]+"-"+axes[0], []string{"Both", "Order", "Observation"}[i%3], notice, "mg/dL", r.longName(i), rank, "1.0", r.component(i)+" "+axes[3])
}

func (r Release) part(w *writer, i int) {
	if i < classes {
		w.row(Class(i), "CLASS", className(i), "Class "+strconv.Itoa(i), "ACTIVE")
		return
	}
	i -= classes
	kind, name := "COMPONENT", words(i, 3)
	if i < len(values) {
		kind, name = "AXIS", values[i]
	}
	w.row(Part(i), kind, name, name, "ACTIVE")
}

// partOf returns the code of the part with a value of an axis.
func partOf(value string) string { return Part(slices.Index(values, value)) }

const propertyURL = "http://loinc.org/property/"

func (r Release) primaryLinks(w *writer, i int) {
	name := r.longName(i)
	w.row(Term(i), name, Part(r.componentPart(i)), r.component(i), "http://loinc.org", "COMPONENT", "Primary", propertyURL+"COMPONENT")
	for axis, value := range r.axes(i) {
		if value != "" {
			property := []string{"PROPERTY", "TIME_ASPCT", "SYSTEM", "SCALE_TYP", "METHOD_TYP"}[axis]
			w.row(Term(i), name, partOf(value), value, "http://loinc.org", property, "Primary", propertyURL+property)
		}
	}
	if i%40 == 3 {
		w.row(Term(i), name, Part(0), "Pt", "http://loinc.org", "Document.Kind", "DocumentOntology", propertyURL+"document-kind")
	}
}

func (r Release) supplementaryLinks(w *writer, i int) {
	for _, property := range []string{"analyte", "analyte-core", "search", "category"} {
		w.row(Term(i), r.longName(i), Part(r.componentPart(i)), r.component(i), "http://loinc.org", "COMPONENT", "DetailedModel", propertyURL+property)
	}
	for axis, value := range r.axes(i)[:4] {
		property := []string{"PROPERTY", "time-core", "system-core", "SCALE_TYP"}[axis]
		w.row(Term(i), r.longName(i), partOf(value), value, "http://loinc.org", property, "SyntaxEnhancement", propertyURL+property)
	}
}

func (r Release) answers(w *writer, i int) {
	for n := range answers {
		answer := (i*3 + n) % (r.Terms/termsOfList*2 + 1)
		w.row(List(i), "List "+strconv.Itoa(i), "N", Answer(answer), strconv.Itoa(n+1), "Answer "+words(answer, 2), "")
	}
}

func (r Release) answerLink(w *writer, i int) {
	w.row(Term(i*termsOfList), "", List(i), "", "EXAMPLE")
}

// hierarchy writes the classes below the first part, half of the parts below classes, and the terms below their components.
func (r Release) hierarchy(w *writer, i int) {
	switch half := r.Parts / 2; {
	case i == 0:
		w.row("", "1", "", Class(0), "{component}")
	case i < classes:
		w.row(Class(0), strconv.Itoa(i), Class(0), Class(i), "Class "+strconv.Itoa(i))
	case i < classes+half:
		n := i - classes
		w.row("", "1", Class(1+n%(classes-1)), Part(n), words(n, 3))
	default:
		term := i - classes - half
		w.row("", "1", Part(r.componentPart(term)%max(half, 1)), Term(term), r.component(term))
	}
}

// variant returns a function that writes the names of three quarters of the terms. Like those of the publisher, variants contain long
// names, short names or only translated axes.
func (r Release) variant(language string, number int) func(w *writer, i int) {
	return func(w *writer, i int) {
		if i%4 == 3 {
			return
		}
		axes, component, names := r.axes(i), language+" "+r.component(i), [3]string{}
		names[number%3] = component + " [" + axes[0] + "] " + axes[2] + " é"
		w.row(Term(i), component, axes[0], axes[1], axes[2], axes[3], axes[4], "", names[1], names[0], words(i, 6), "")
	}
}

// random returns a source of random numbers for the i-th row of a kind.
func random(kind uint64, i int) *rand.Rand { return rand.New(rand.NewPCG(kind, uint64(i))) }

// syllables form the words of names.
var syllables = strings.Fields("ar ba co de em fi gas hep in ju kar lo me neu os per qui ren sta tor ul ve xan yl zo dys itis ol gen al ase ine")

// words returns n words for a number. Few words are frequent, as in natural language.
func words(number, n int) string {
	var text strings.Builder
	source := random(2, number)
	for i := range n {
		if i > 0 {
			text.WriteByte(' ')
		}
		word := int(math.Exp(source.Float64() * math.Log(20_000)))
		for digits := word + 33; digits > 0; digits /= len(syllables) {
			text.WriteString(syllables[digits%len(syllables)])
		}
	}
	return text.String()
}

// writer contains the rows of a file.
type writer struct{ buffer []byte }

// row adds a row, with each value in quotes.
func (w *writer) row(values ...string) {
	for i, value := range values {
		if i > 0 {
			w.buffer = append(w.buffer, ',')
		}
		w.buffer = append(append(append(w.buffer, '"'), strings.ReplaceAll(value, `"`, `""`)...), '"')
	}
	w.buffer = append(w.buffer, "\r\n"...)
}
