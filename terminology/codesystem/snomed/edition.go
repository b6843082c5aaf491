package snomed

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

// ukEdition is the module that identifies the edition of the United Kingdom. It contains few concepts.
const ukEdition sctid = 83821000000107

// edition identifies the edition and version of a release (SNOMED CT URI Standard).
type edition struct {
	module sctid
	date   date

	// unpublished marks a module that no module dependency describes. Its URI begins with http://snomed.info/xsct/.
	unpublished bool
}

// edition returns the edition and version of the release.
func (l *loader) edition() (edition, error) {
	var e edition
	e.module, e.unpublished = l.editionModule()
	for _, d := range l.dependencies {
		if d.module == e.module {
			e.date = max(e.date, d.date)
		}
	}
	for _, file := range l.files[conceptFile] {
		name := strings.TrimSuffix(path.Base(file), ".txt")
		if d, ok := parseDate([]byte(name[1+strings.LastIndexByte(name, '_'):])); ok && (e.date == 0 || e.unpublished) {
			e.date = max(e.date, d)
		}
	}
	if e.date == 0 {
		return e, fmt.Errorf("neither the module dependency reference set nor the name of the file %s contains the date of the release", l.files[conceptFile][0])
	}
	return e, nil
}

// editionModule returns the module that identifies the edition: an unpublished module, the core module if all files are
// international, or otherwise the national module with the most concepts.
func (l *loader) editionModule() (module sctid, unpublished bool) {
	concepts := make([]int, len(l.modules.ids))
	for _, module := range l.concepts.module {
		concepts[module]++
	}
	best := -1
	for i, id := range l.modules.ids {
		isDescribed := slices.ContainsFunc(l.dependencies, func(d dependency) bool { return d.module == id || d.target == id })
		switch {
		case id == coreModule || id == metadataModule || concepts[i] == 0:
		case l.dependencies != nil && !isDescribed:
			return id, true
		case id == ukEdition:
			return id, false
		case best < 0 || concepts[i] > concepts[best]:
			best = i
		}
	}
	isNational := func(file string) bool { return !strings.Contains(path.Base(file), "_INT_") }
	if best < 0 || !slices.ContainsFunc(l.files[conceptFile], isNational) {
		return coreModule, false
	}
	return l.modules.ids[best], false
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
