package snomed

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path"
	"runtime"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/caddy-fhir/caddy-fhir/terminology/codesystem"
	"github.com/caddy-fhir/caddy-fhir/terminology/codesystem/snomed/ecl"
	"github.com/caddy-fhir/caddy-fhir/terminology/definitions"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/table"
)

// Concepts of the metadata hierarchy that RF2 files refer to.
const (
	rootConcept       sctid = 138875005
	isA               sctid = 116680003
	inferred          sctid = 900000000000011006
	fullyDefined      sctid = 900000000000073002
	fsnType           sctid = 900000000000003001
	synonymType       sctid = 900000000000013009
	definitionType    sctid = 900000000000550004
	preferred         sctid = 900000000000548007
	usEnglish         sctid = 900000000000509007
	gbEnglish         sctid = 900000000000508004
	coreModule        sctid = 900000000000207008 // identifies the International Edition
	metadataModule    sctid = 900000000000012004
	moduleDependency  sctid = 900000000000534007
	foundationRefsets sctid = 900000000000455006 // reference set, the root of all reference sets
)

// fileKind is the kind of an RF2 file.
type fileKind uint8

const (
	otherFile fileKind = iota
	conceptFile
	descriptionFile
	relationshipFile
	concreteFile
	languageFile
	dependencyFile
	identifierFile
	refsetFile
)

// kindOf returns the kind of a file from its name (RF2 file naming convention). Files of Full and Delta releases, stated
// relationships and OWL axioms are not read.
func kindOf(file string) fileKind {
	parts := strings.Split(strings.TrimPrefix(path.Base(file), "x"), "_") // x marks files of a beta release
	if len(parts) < 4 || path.Ext(file) != ".txt" || !strings.Contains(parts[2], "Snapshot") {
		return otherFile
	}
	switch content := parts[1]; {
	case parts[0] == "sct2" && content == "Concept":
		return conceptFile
	case parts[0] == "sct2" && (content == "Description" || content == "TextDefinition"):
		return descriptionFile
	case parts[0] == "sct2" && content == "Relationship":
		return relationshipFile
	case parts[0] == "sct2" && content == "RelationshipConcreteValues":
		return concreteFile
	case parts[0] == "sct2" && content == "Identifier":
		return identifierFile
	case !strings.HasSuffix(content, "Refset") || strings.HasPrefix(parts[2], "OWL"):
		return otherFile
	case strings.HasPrefix(parts[2], "Language"):
		return languageFile
	case strings.HasPrefix(parts[2], "ModuleDependency"):
		return dependencyFile
	}
	return refsetFile
}

// loader reads the files of an edition. Until [loader.sortConcepts], concepts are numbered in the order of the files.
type loader struct {
	release      *definitions.Release
	files        map[fileKind][]string
	index        idIndex // numbers of concepts in the order of the files
	concepts     conceptRows
	dependencies []dependency
	descriptions descriptionLoader
	attributes   ecl.Relationships // in the order of the files
	concrete     concreteRows
	isA          []edge
	refsets      refsetLoader
	modules      moduleIndex
	table        table.Builder
}

// load reads a release. It reads concepts first. All other files refer to them and are read at the same time.
func load(ctx context.Context, r *definitions.Release) (*definitions.ReleaseContent, error) {
	l := &loader{release: r, files: make(map[fileKind][]string)}
	l.descriptions.loader = l
	l.refsets = refsetLoader{loader: l, sets: make(map[sctid]*refset), known: make(map[string]codesystem.TextRef)}
	l.table.Reset()
	defer func() { l.table.Memory.Release() }()
	if err := l.plan(); err != nil {
		return nil, err
	}
	if err := l.readAll(conceptFile, l.readConcepts); err != nil {
		return nil, err
	}
	if l.index.find(rootConcept) == none {
		return nil, fmt.Errorf("%s: no root concept %d; an extension must be combined with the edition that it extends", l.files[conceptFile][0], rootConcept)
	}
	var g errgroup.Group
	g.SetLimit(runtime.GOMAXPROCS(0))
	g.Go(func() error { return l.descriptions.read() })
	g.Go(func() error {
		return errors.Join(l.readAll(relationshipFile, l.readRelationships), l.readAll(concreteFile, l.readConcreteValues))
	})
	g.Go(func() error {
		return errors.Join(l.readAll(refsetFile, l.refsets.read), l.readAll(identifierFile, l.refsets.read), l.readAll(dependencyFile, l.readDependencies))
	})
	if err := g.Wait(); err != nil {
		return nil, err
	}
	s, err := l.build()
	if err != nil {
		return nil, err
	}
	r.Logger.InfoContext(ctx, "SNOMED CT release loaded", slog.String("version", s.snapshot.edition.versionURI()), slog.Int("concepts", s.Len()),
		slog.Int("members_without_concept", l.refsets.dangling))
	return content(s), nil
}

// plan finds the files to read.
func (l *loader) plan() error {
	var all []string
	for _, file := range l.release.Files {
		if kind := kindOf(file); kind != otherFile {
			l.files[kind] = append(l.files[kind], file)
			all = append(all, file)
		}
	}
	for _, content := range []string{"Description", "Relationship"} {
		if !slices.ContainsFunc(all, func(file string) bool { return strings.Contains(path.Base(file), "_"+content+"_") }) {
			return fmt.Errorf("the release contains no file sct2_%s_Snapshot*.txt", content)
		}
	}
	return l.release.Plan(all)
}

// readAll calls read for each file of a kind.
func (l *loader) readAll(kind fileKind, read func(file string) error) error {
	for _, file := range l.files[kind] {
		if err := read(file); err != nil {
			return err
		}
	}
	return nil
}

// conceptRows are the columns of concepts.
type conceptRows struct {
	active, defined []bool
	module          []uint16
	effective       []date
}

func (l *loader) readConcepts(file string) error {
	f, at, err := openRF2(l.release, file, "id", "effectiveTime", "active", "moduleId", "definitionStatusId")
	if err != nil {
		return err
	}
	return f.each(func() error {
		effective, active, module, err := l.addComponent(f, at, "concept", &l.index)
		if err != nil {
			return err
		}
		status, err := f.sctid(at[4])
		c := &l.concepts
		c.active, c.effective, c.module = append(c.active, active), append(c.effective, effective), append(c.module, module)
		c.defined = append(c.defined, status == fullyDefined)
		return err
	})
}

// addComponent adds the identifier of a component to an index and reads its status. at contains the indexes of id, effectiveTime,
// active and moduleId.
func (l *loader) addComponent(f *rf2File, at []int, kind string, index *idIndex) (effective date, active bool, module uint16, err error) {
	id, err := f.sctid(at[0])
	if err != nil {
		return 0, false, 0, err
	}
	if !index.add(id) {
		return 0, false, 0, f.errorf("%s %d occurs twice: a folder must contain a single edition in a single version", kind, id)
	}
	return l.status(f, at[1:])
}

// status reads the columns that all components have. at contains the indexes of effectiveTime, active and moduleId.
func (l *loader) status(f *rf2File, at []int) (effective date, active bool, module uint16, err error) {
	if effective, err = f.date(at[0]); err != nil {
		return 0, false, 0, err
	}
	if active, err = f.isActive(at[1]); err != nil {
		return 0, false, 0, err
	}
	id, err := f.sctid(at[2])
	if err != nil {
		return 0, false, 0, err
	}
	if id != f.lastModule {
		if f.lastModuleNumber, err = l.modules.add(id); err != nil {
			return 0, false, 0, f.errorf("%w", err)
		}
		f.lastModule = id
	}
	return effective, active, f.lastModuleNumber, nil
}

// concept returns the number of the concept in a column. The edition must contain it.
func (l *loader) concept(f *rf2File, column int) (uint32, error) {
	id, err := f.sctid(column)
	if err != nil {
		return none, err
	}
	number := l.index.find(id)
	if number == none {
		return none, f.errorf("%s %d is not a concept of this release; an extension must be combined with the edition that it extends", f.columns[column], id)
	}
	return number, nil
}

// edge is an is-a relationship with its file and line.
type edge struct {
	child, parent uint32
	file          string
	line          int
}

// concreteRows are active inferred relationships to values, such as the number 500 or a string.
type concreteRows struct {
	source, kind []uint32
	group        []uint16
	value        []codesystem.TextRef // the value as in RF2, such as #500 or "text"
	texts        codesystem.Texts
}

// relationship contains the columns that relationships to concepts and to values have.
type relationship struct {
	source, kind uint32
	group        uint16
}

func (l *loader) readRelationships(file string) error {
	return l.eachRelationship(file, "destinationId", func(f *rf2File, column int, r relationship) error {
		destination, err := l.concept(f, column)
		if err != nil {
			return err
		}
		if l.index.ids[r.kind] == isA {
			l.isA = append(l.isA, edge{child: r.source, parent: destination, file: file, line: f.line})
			return nil
		}
		a := &l.attributes
		a.Source, a.Type, a.Destination, a.Group = append(a.Source, r.source), append(a.Type, r.kind), append(a.Destination, destination), append(a.Group, r.group)
		return nil
	})
}

func (l *loader) readConcreteValues(file string) error {
	return l.eachRelationship(file, "value", func(f *rf2File, column int, r relationship) error {
		value, c := f.fields[column], &l.concrete
		if len(value) < 2 || value[0] != '#' && value[0] != '"' {
			return f.errorf("value is neither #number nor \"text\": %q", truncate(value))
		}
		c.source, c.kind, c.group, c.value = append(c.source, r.source), append(c.kind, r.kind), append(c.group, r.group), append(c.value, c.texts.Append(value))
		return nil
	})
}

// eachRelationship calls visit with the active inferred relationships in a file and the index of the column valueName.
func (l *loader) eachRelationship(file, valueName string, visit func(f *rf2File, column int, r relationship) error) error {
	f, at, err := openRF2(l.release, file, valueName, "active", "characteristicTypeId", "sourceId", "typeId", "relationshipGroup")
	if err != nil {
		return err
	}
	return f.each(func() error {
		active, err := f.isActive(at[1])
		if err != nil || !active {
			return err
		}
		characteristic, err := f.sctid(at[2])
		if err != nil || characteristic != inferred {
			return err
		}
		var r relationship
		if r.source, err = l.concept(f, at[3]); err != nil {
			return err
		}
		if r.kind, err = l.concept(f, at[4]); err != nil {
			return err
		}
		group, ok := parseNumber(f.fields[at[5]], 1<<16)
		if !ok {
			return f.errorf("relationshipGroup is not a number below 65536: %q", truncate(f.fields[at[5]]))
		}
		r.group = uint16(group)
		return visit(f, at[0], r)
	})
}

// parseNumber parses a decimal number below limit.
func parseNumber(text []byte, limit uint32) (n uint32, ok bool) {
	for _, c := range text {
		if c < '0' || c > '9' || n > limit/10 {
			return 0, false
		}
		n = n*10 + uint32(c-'0')
	}
	return n, len(text) > 0 && n < limit
}

// sortConcepts numbers the concepts again, with parents before children, and replaces all numbers. order contains the old
// numbers in the new order. A cycle is an error.
func (l *loader) sortConcepts() (order []uint32, err error) {
	n := len(l.index.ids)
	parents := make([]uint32, n) // number of parents that are not in order yet
	owners := make([]uint32, len(l.isA))
	for i, e := range l.isA {
		owners[i] = e.parent
		parents[e.child]++
	}
	from, children := groupByOwner(n, owners)
	order = make([]uint32, 0, n)
	for concept := range uint32(n) {
		if parents[concept] == 0 {
			order = append(order, concept)
		}
	}
	slices.SortFunc(order, l.compareTopLevel)
	for i := 0; i < len(order); i++ {
		for _, row := range children[from[order[i]]:from[order[i]+1]] {
			child := l.isA[row].child
			if parents[child]--; parents[child] == 0 {
				order = append(order, child)
			}
		}
	}
	if len(order) < n {
		e := l.isA[slices.IndexFunc(l.isA, func(e edge) bool { return parents[e.child] > 0 && parents[e.parent] > 0 })]
		return nil, fmt.Errorf("%s line %d: the is-a relationships of concept %d form a cycle", e.file, e.line, l.index.ids[e.child])
	}
	return order, nil
}

// compareTopLevel sorts concepts without parents: the root first, then active concepts, then by identifier.
func (l *loader) compareTopLevel(a, b uint32) int {
	rank := func(concept uint32) uint64 {
		switch {
		case l.index.ids[concept] == rootConcept:
			return 0
		case l.concepts.active[concept]:
			return uint64(l.index.ids[concept])
		}
		return uint64(l.index.ids[concept]) | 1<<63
	}
	return cmp.Compare(rank(a), rank(b))
}

// dependency is an active row of the module dependency reference set.
type dependency struct {
	module, target sctid
	date           date
}

func (l *loader) readDependencies(file string) error {
	f, at, err := openRF2(l.release, file, "active", "moduleId", "referencedComponentId", "sourceEffectiveTime", "refsetId")
	if err != nil {
		return err
	}
	return f.each(func() error {
		active, err := f.isActive(at[0])
		if err != nil || !active || string(f.fields[at[4]]) != fmt.Sprint(uint64(moduleDependency)) {
			return err
		}
		var d dependency
		if d.module, err = f.sctid(at[1]); err != nil {
			return err
		}
		if d.target, err = f.sctid(at[2]); err != nil {
			return err
		}
		d.date, err = f.date(at[3])
		l.dependencies = append(l.dependencies, d)
		return err
	})
}
