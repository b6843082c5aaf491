package loinc

import (
	"cmp"
	"path"
	"regexp"
	"slices"
	"strings"
)

// readAnswers reads the answer lists and their answers. A list that another code system defines has no answers.
func (l *loader) readAnswers(file string) error {
	f, at, err := openCSV(l.release, file, "AnswerListId", "AnswerListName", "AnswerStringId", "DisplayText")
	if err != nil {
		return err
	}
	description := f.column("Description")
	return f.each(func() error {
		list, err := l.findOrAdd(f, at[0], f.fields[at[1]], nil)
		if err != nil || len(f.fields[at[2]]) == 0 {
			return err
		}
		answer, err := l.findOrAdd(f, at[2], f.fields[at[3]], f.optional(description))
		l.link(list, answer, propertyAnswer)
		return err
	})
}

// findOrAdd returns the concept with the code in a column. It adds the concept if the release does not contain it yet.
func (l *loader) findOrAdd(f *csvFile, column int, display, definition []byte) (uint32, error) {
	concept, ok, err := l.find(f, column)
	if err == nil && !ok {
		return l.addConcept(f, column, display, definition, 0)
	}
	return concept, err
}

// link adds a link between concepts.
func (l *loader) link(source, target uint32, property uint16) {
	l.links = append(l.links, linkRow{source: source, target: target, property: property})
}

// readLinks reads a file of which two columns contain the codes of linked concepts. Links to concepts that the release does not
// contain are ignored.
func (l *loader) readLinks(file, source, target string, property uint16) error {
	f, at, err := openCSV(l.release, file, source, target)
	if err != nil {
		return err
	}
	return f.each(func() error {
		from, to, ok, err := l.pair(f, at[0], at[1])
		if ok && from != to {
			l.link(from, to, property)
		}
		return err
	})
}

func (l *loader) readAnswerLinks(file string) error {
	return l.readLinks(file, "LoincNumber", "AnswerListId", propertyAnswerList)
}

func (l *loader) readGroupTerms(file string) error {
	return l.readLinks(file, "LoincNumber", "GroupId", propertyGroup)
}

func (l *loader) readPanels(file string) error {
	return l.readLinks(file, "ParentLoinc", "Loinc", propertyPanelMember)
}

func (l *loader) readParentGroups(file string) error {
	f, at, err := openCSV(l.release, file, "ParentGroupId", "ParentGroup")
	if err != nil {
		return err
	}
	return f.each(func() error {
		_, err := l.addConcept(f, at[0], f.fields[at[1]], nil, 0)
		return err
	})
}

// readGroups reads the groups. A group may be listed once for each of its parents.
func (l *loader) readGroups(file string) error {
	f, at, err := openCSV(l.release, file, "GroupId", "Group", "ParentGroupId")
	if err != nil {
		return err
	}
	return f.each(func() error {
		group, err := l.findOrAdd(f, at[0], f.fields[at[1]], nil)
		if err != nil || len(f.fields[at[2]]) == 0 {
			return err
		}
		parent, ok, err := l.find(f, at[2])
		if ok {
			l.addParent(f, group, parent)
		}
		return err
	})
}

func (l *loader) addParent(f *csvFile, child, parent uint32) {
	l.edges = append(l.edges, edge{child: child, parent: parent, file: f.name, line: f.line})
	l.table.AddParent(child, parent)
}

// readHierarchy reads the component hierarchy, which lists parents before their children. It contains parts that the file of
// parts does not contain.
func (l *loader) readHierarchy(file string) error {
	f, at, err := openCSV(l.release, file, "CODE", "CODE_TEXT", "IMMEDIATE_PARENT")
	if err != nil {
		return err
	}
	return f.each(func() error {
		concept, err := l.findOrAdd(f, at[0], f.fields[at[1]], nil)
		if err != nil || len(f.fields[at[2]]) == 0 {
			return err
		}
		parent, ok, err := l.find(f, at[2])
		if err == nil && !ok {
			return f.errorf("%s %s is not a concept of this release", f.columns[at[2]], f.fields[at[2]])
		}
		l.addParent(f, concept, parent)
		return err
	})
}

func (l *loader) readConsumerNames(file string) error {
	f, at, err := openCSV(l.release, file, "LoincNumber", "ConsumerName")
	if err != nil {
		return err
	}
	return f.each(func() error {
		term, ok, err := l.find(f, at[0])
		if ok {
			l.addName(term, language, "ConsumerName", f.fields[at[1]])
		}
		return err
	})
}

// variantPattern matches the name of a file with names in another language, such as deDE15LinguisticVariant.csv.
var variantPattern = regexp.MustCompile(`^([a-z]{2,3})([A-Z]{2})?\d*LinguisticVariant\.csv$`)

// variants returns the files with names in other languages. For a language with several of them, the country of that name comes
// first, because a request for de prefers the first one.
func (l *loader) variants() (files []string) {
	for _, file := range l.files {
		if variantPattern.MatchString(path.Base(file)) {
			files = append(files, file)
		}
	}
	rank := func(file string) string {
		found := variantPattern.FindStringSubmatch(path.Base(file))
		if strings.EqualFold(found[1], found[2]) {
			return found[1]
		}
		return found[1] + found[2]
	}
	slices.SortFunc(files, func(a, b string) int { return cmp.Compare(rank(a), rank(b)) })
	return files
}

// nameColumns are the columns with names, of which the first is preferred as the display.
var nameColumns = []string{"LONG_COMMON_NAME", "LinguisticVariantDisplayName", "SHORTNAME"}

func (l *loader) readVariants() error {
	for _, file := range l.variants() {
		if err := l.readVariant(file); err != nil {
			return err
		}
	}
	return nil
}

func (l *loader) readVariant(file string) error {
	found := variantPattern.FindStringSubmatch(path.Base(file))
	tag := strings.TrimSuffix(found[1]+"-"+found[2], "-")
	f, at, err := openCSV(l.release, file, "LOINC_NUM")
	if err != nil {
		return err
	}
	columns := make([]int, len(nameColumns))
	for i, name := range nameColumns {
		columns[i] = f.column(name)
	}
	return f.each(func() error {
		term, ok, err := l.find(f, at[0])
		if !ok {
			return err
		}
		for i, column := range columns {
			l.addName(term, tag, nameColumns[i], f.optional(column))
		}
		return nil
	})
}
