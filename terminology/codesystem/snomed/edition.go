package snomed

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
)

// ukEdition is the module that identifies the edition of the United Kingdom. It contains few concepts.
const ukEdition sctid = 83821000000107

// edition identifies the edition and version of a release (SNOMED CT URI Standard).
type edition struct {
	module sctid
	date   date

	// unpublished marks a module that depends on itself, as tools for extracts write it. Its URI begins with
	// http://snomed.info/xsct/.
	unpublished bool
}

// edition returns the edition and version of the release.
func (l *loader) edition() (e edition, err error) {
	var fileDate date
	for _, file := range l.files[conceptFile] {
		name := strings.TrimSuffix(path.Base(file), ".txt")
		if d, ok := parseDate([]byte(name[1+strings.LastIndexByte(name, '_'):])); ok {
			fileDate = max(fileDate, d)
		}
	}
	e.module = l.editionModule(fileDate)
	for _, d := range l.dependencies {
		if d.module == e.module {
			e.date = max(e.date, d.date)
			e.unpublished = e.unpublished || d.target == e.module
		}
	}
	if e.date = cmp.Or(e.date, fileDate); e.date == 0 {
		return e, fmt.Errorf("neither the module dependency reference set nor the name of the file %s contains the date of the release", l.files[conceptFile][0])
	}
	return e, nil
}

// editionModule returns the module that identifies the edition: the core module for an international release, or otherwise the
// national module with the most concepts.
func (l *loader) editionModule(fileDate date) sctid {
	isNational := func(file string) bool { return !strings.Contains(path.Base(file), "_INT_") }
	isOlder := func(d dependency) bool { return d.module == coreModule && d.date != 0 && d.date < fileDate }
	if !slices.ContainsFunc(l.files[conceptFile], isNational) && !slices.ContainsFunc(l.dependencies, isOlder) {
		return coreModule
	}
	concepts := make([]int, len(l.modules.ids))
	for _, module := range l.concepts.module {
		concepts[module]++
	}
	best := -1
	for i, id := range l.modules.ids {
		switch {
		case id == ukEdition:
			return id
		case id == coreModule || id == metadataModule || concepts[i] == 0:
		case best < 0 || concepts[i] > concepts[best]:
			best = i
		}
	}
	if best < 0 {
		return coreModule
	}
	return l.modules.ids[best]
}

// uri returns the URI of the edition.
func (e edition) uri() string {
	namespace := "sct"
	if e.unpublished {
		namespace = "xsct"
	}
	return fmt.Sprintf("http://snomed.info/%s/%d", namespace, uint64(e.module))
}

// versionURI returns the URI of the version of the edition.
func (e edition) versionURI() string { return e.uri() + "/version/" + e.date.String() }

// name returns the name of the edition for messages. HL7's tests expect "International Edition" for unpublished releases.
func (e edition) name() string {
	if e.module == coreModule || e.unpublished {
		return "International Edition"
	}
	return "edition " + strconv.FormatUint(uint64(e.module), 10)
}

// versionOf returns the version to which a URL of the edition refers: "" for the code system, or the URI of the edition or
// version. ok is false for other URLs.
func (e edition) versionOf(base string) (version string, ok bool) {
	switch base {
	case URL:
		return "", true
	case e.uri(), e.versionURI():
		return base, true
	}
	return "", false
}
