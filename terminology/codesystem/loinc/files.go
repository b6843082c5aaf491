package loinc

import (
	"bytes"
	"path"
	"regexp"
	"strconv"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/terminology/codesystem"
)

// Columns of Loinc.csv, by their position in its source. Those with names of parts come last: the six axes and the class. They are
// the first [linkProperties].
const (
	firstAxis = 9
	axisClass = 6
	axisCount = 7
)

// typicalLinks is the usual number of links per term.
const typicalLinks = 16

// otherColumns are the columns of Loinc.csv that are not properties.
var otherColumns = map[string]bool{
	"LOINC_NUM": true, "LONG_COMMON_NAME": true, "SHORTNAME": true, "CONSUMER_NAME": true, "DisplayName": true, "DefinitionDescription": true,
}

// beginTerms reads Loinc.csv. All other columns are properties.
func (l *loader) beginTerms(f *csvFile) func() error {
	first, columns := uint16(len(l.texts)), []int(nil)
	for i, column := range f.columns {
		if _, isAxis := l.properties[column]; isAxis || otherColumns[column] {
			continue
		}
		uri := ""
		if column == "STATUS" {
			uri = codesystem.PropertyBase + "status"
		}
		l.declare(column, uri)
		columns = append(columns, i)
	}
	return func() error {
		term, err := l.add(f, 0, f.value(1), f.value(5), f.value(2))
		if err != nil {
			return err
		}
		l.addName(term, language, "SHORTNAME", f.value(3))
		l.addName(term, language, "DisplayName", f.value(4))
		for axis := range l.axes {
			l.axes[axis] = append(l.axes[axis], l.addText(uint16(axis), f.value(firstAxis+axis)))
		}
		for i, column := range columns {
			property := first + uint16(i)
			l.addString(term, property, l.addText(property, f.fields[column]))
		}
		rank, _ := strconv.ParseUint(string(f.value(6)), 10, 32) // 0 if the term is not among the most frequent
		l.ranks = append(l.ranks, float64(rank))
		l.addVersion(f.value(7))
		l.addVersion(f.value(8))
		l.terms++
		return nil
	}
}

// beginParts reads Part.csv.
func (l *loader) beginParts(f *csvFile) func() error {
	l.links = make([]linkRow, 0, l.terms*typicalLinks)
	status := l.properties["STATUS"]
	return func() error {
		part, err := l.add(f, 0, f.value(1), nil, f.value(4))
		if err != nil {
			return err
		}
		l.addString(part, status, l.addText(status, f.value(4)))
		if !bytes.Equal(f.value(1), f.value(3)) {
			l.addName(part, language, "DisplayName", f.value(3))
		}
		if name := l.texts[axisClass][string(f.value(1))]; name != 0 && string(f.value(2)) == "CLASS" {
			l.classes[name] = part
		}
		return nil
	}
}

// maxProperties is the maximum number of properties. Releases have about 80.
const maxProperties = 1000

// beginPartLinks reads a file with links from terms to parts. It declares their properties, which are URLs.
func (l *loader) beginPartLinks(f *csvFile) func() error {
	return func() error {
		name := f.value(2)
		name = name[strings.LastIndexByte(string(name), '/')+1:]
		property, ok := l.properties[string(name)]
		if !ok {
			if len(name) == 0 || len(l.properties) == maxProperties {
				return f.errorf("%s is empty, or there are more than %d properties", f.required[2], maxProperties)
			}
			property = l.declare(string(name), "")
		}
		return l.readLink(f, property)
	}
}

// beginLinks returns a function that reads a file with links between the concepts in its first two columns.
func beginLinks(property uint16) func(l *loader, f *csvFile) func() error {
	return func(l *loader, f *csvFile) func() error {
		return func() error { return l.readLink(f, property) }
	}
}

// readLink reads a link. Links to concepts that the release does not contain are ignored.
func (l *loader) readLink(f *csvFile, property uint16) error {
	source, hasSource, err := l.find(f, 0)
	if err != nil {
		return err
	}
	if key, err := f.code(1); err != nil {
		return err
	} else if target, ok := l.concepts[key]; ok && hasSource && source != target {
		l.link(source, target, property)
	}
	return nil
}

// beginAnswers reads the answer lists and their answers. A list that another code system defines has no answers.
func (l *loader) beginAnswers(f *csvFile) func() error {
	return func() error {
		list, err := l.findOrAdd(f, 0, f.value(1), nil)
		if err != nil || len(f.value(2)) == 0 {
			return err
		}
		answer, err := l.findOrAdd(f, 2, f.value(3), f.value(4))
		l.link(list, answer, propertyAnswer)
		return err
	}
}

// beginHierarchy reads concepts and their parents. The component hierarchy contains parts that the file of parts does not contain.
func (l *loader) beginHierarchy(f *csvFile) func() error {
	return func() error {
		concept, err := l.findOrAdd(f, 0, f.value(1), nil)
		if err != nil || len(f.value(2)) == 0 {
			return err
		}
		parent, err := l.findOrAdd(f, 2, nil, nil)
		l.edges = append(l.edges, edge{child: concept, parent: parent, file: f.name, line: f.line})
		l.table.AddParent(concept, parent)
		return err
	}
}

// beginConsumerNames reads ConsumerName.csv.
func (l *loader) beginConsumerNames(f *csvFile) func() error {
	return func() error {
		term, ok, err := l.find(f, 0)
		if ok {
			l.addName(term, language, "ConsumerName", f.value(1))
		}
		return err
	}
}

// variantPattern matches the name of a file with names in another language, such as deDE15LinguisticVariant.csv.
var variantPattern = regexp.MustCompile(`^([a-z]{2,3})([A-Z]{2})?\d*LinguisticVariant\.csv$`)

// variantLanguage returns the language of a file with names in another language, such as de-DE.
func variantLanguage(file string) string {
	if found := variantPattern.FindStringSubmatch(path.Base(file)); found != nil {
		return strings.TrimSuffix(found[1]+"-"+found[2], "-")
	}
	return ""
}

// variantRank returns a key that sorts variants by language. The country of the same name comes first.
func variantRank(file string) string {
	tag := variantLanguage(file)
	language, country, _ := strings.Cut(tag, "-")
	if strings.EqualFold(language, country) {
		return language
	}
	return tag
}

// nameColumns are the columns of variants with names, of which the first is preferred as the display.
var nameColumns = []string{"LONG_COMMON_NAME", "LinguisticVariantDisplayName", "SHORTNAME"}

// beginVariant reads names in another language. Many variants translate only the axes, which form the fully specified name.
func (l *loader) beginVariant(f *csvFile) func() error {
	tag := variantLanguage(f.name)
	return func() error {
		term, ok, err := l.find(f, 0)
		if !ok {
			return err
		}
		hasName := false
		for i, name := range nameColumns {
			l.addName(term, tag, name, f.value(1+i))
			hasName = hasName || len(f.value(1+i)) > 0
		}
		if !hasName && len(f.value(4)) > 0 {
			axes := [][]byte{f.value(4), f.value(5), f.value(6), f.value(7), f.value(8), f.value(9)}
			l.addName(term, tag, "FullySpecifiedName", bytes.TrimRight(bytes.Join(axes, []byte{':'}), ":"))
		}
		return nil
	}
}
