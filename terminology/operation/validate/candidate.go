package validate

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/terminology/codesystem"
	"github.com/caddy-fhir/caddy-fhir/terminology/definitions"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/budget"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/compose"
	"github.com/caddy-fhir/caddy-fhir/terminology/outcome"
	"github.com/caddy-fhir/caddy-fhir/terminology/parameters"
)

// candidate is an include that may contain a coding.
type candidate struct {
	versionChoice
	member *found
}

// candidateFinder finds the includes of a value set that may contain a coding.
type candidateFinder struct {
	library    *definitions.Set
	valueSet   *definitions.ValueSet // nil: validate only against the code system
	rules      *compose.Rules
	budget     *budget.Budget
	versions   versionChooser
	memberOnly bool
	imported   []*definitions.ValueSet // searched imports
	mismatch   []string                // reasons why the last coding does not match filters
}

// candidates returns the includes that may contain a coding, or the code system without a value set.
func (v *candidateFinder) candidates(c *parameters.Coding) ([]candidate, error) {
	if v.valueSet == nil {
		list := []candidate{{versionChoice: v.versions.choose(c, "", v.rules.Date)}}
		if list[0].index == definitions.None {
			return list, nil
		}
		return list, v.library.Systems.CodeSystems[list[0].index].Usable("code system")
	}
	in := &includeSearch{finder: v, coding: c, evaluator: compose.NewEvaluator(v.library, v.rules, v.budget)}
	in.evaluator.Probe = &compose.Probe{Code: []byte(c.Code), Choose: in.choose}
	if err := in.evaluator.CheckImports(v.valueSet, make(map[*definitions.ValueSet]bool)); err != nil {
		return nil, err
	}
	members, err := in.evaluator.ValueSet(v.valueSet)
	if err != nil {
		return nil, err
	}
	v.imported, v.mismatch = in.evaluator.Probe.Imported, in.evaluator.Probe.Mismatch
	return in.list, in.place(members.Entries)
}

// includeSearch collects candidates while an evaluator searches for the coding.
type includeSearch struct {
	evaluator *compose.Evaluator
	finder    *candidateFinder
	coding    *parameters.Coding
	list      []candidate
}

// choose returns the code system version of an include, and whether it may contain the coding.
func (in *includeSearch) choose(set *definitions.ConceptSet) (uint32, bool) {
	c, l, path := in.coding, in.finder.library, in.evaluator.Path
	within := path[len(path)-1]
	if index := l.Systems.ContainedCodeSystem(within, set.System, set.Version); index != definitions.None {
		cs := l.Systems.CodeSystems[index]
		in.list = append(in.list, candidate{versionChoice: versionChoice{index: index, matches: c.Version == "" || definitions.MatchesVersion(cs.Version, c.Version)}})
		return index, cs.URL == c.System
	}
	if set.System != c.System || in.finder.rules.Versions.Excludes(set.System, set.Version) {
		return l.Systems.CodeSystem(set.System, set.Version), set.System == c.System
	}
	choice := in.finder.versions.choose(c, set.Version, cmp.Or(within.LockedDate, in.finder.rules.Date))
	if set.Enumerated {
		choice.takeListed()
	}
	choice.open = choice.index == definitions.None && !set.Enumerated && !in.finder.memberOnly
	if !slices.ContainsFunc(in.list, func(o candidate) bool { return o.index == choice.index && len(o.notes) == len(choice.notes) }) {
		in.list = append(in.list, candidate{versionChoice: choice})
	}
	in.evaluator.Probe.Chosen = len(in.list)
	return choice.index, true
}

// place assigns the entries of the coding in the value set to their candidates.
func (in *includeSearch) place(members []definitions.Entry) error {
	if err := in.finder.budget.Charge(len(members) * len(in.list) / budget.PlainBytes); err != nil {
		return err
	}
	for _, e := range members {
		if at := slices.IndexFunc(in.list, func(o candidate) bool { return o.index == e.CodeSystem && o.member == nil }); at >= 0 {
			in.list[at].member = in.found(e)
		}
	}
	return nil
}

// found is the entry that an expansion would have for a coding.
type found struct {
	definitions.LocatedEntry
	excluded bool // inactive, and inactive codes are excluded
}

func (in *includeSearch) found(e definitions.Entry) *found {
	onlyActive := in.finder.valueSet.ActiveOnly || in.finder.rules.ActiveOnly == parameters.Yes
	return &found{LocatedEntry: in.evaluator.Locate(e), excluded: onlyActive && in.evaluator.IsInactive(e)}
}

// best returns the candidate with the highest rank. The default is the code system version of the coding.
func (v *candidateFinder) best(c *parameters.Coding, list []candidate) (versionChoice, *found, error) {
	best, most := -1, -1
	for i := range list {
		n, err := v.rank(c, &list[i])
		if err != nil {
			return versionChoice{}, nil, err
		}
		if n > most {
			best, most = i, n
		}
	}
	if best < 0 {
		choice := versionChoice{index: v.versions.codeSystem(c.System, c.Version), matches: true}
		if versions := v.library.Systems.VersionsOf(c.System); choice.index == definitions.None && c.Version != "" && len(versions) > 0 {
			choice.add(unknownVersion(c, c.Version, versions))
			choice.unknown = outcome.Canonical(c.System, c.Version)
			choice.index = v.versions.codeSystem(c.System, "")
		}
		return choice, nil, nil
	}
	return list[best].versionChoice, list[best].member, nil
}

// rank rates how well a candidate matches a coding by version, membership and display, in this order.
func (v *candidateFinder) rank(c *parameters.Coding, o *candidate) (n int, err error) {
	if o.matches && !o.failed() {
		n += 8
	}
	if o.member == nil {
		return n, nil
	}
	if n += 2; !o.member.excluded {
		n += 4
	}
	texts := v.library.ShownTexts(nil, o.member.LocatedEntry, v.valueSet.Language, nil)
	if slices.ContainsFunc(texts, func(t codesystem.Text) bool { return equalDisplay(t.Value, c.Display) }) {
		n++
	}
	return n, v.budget.Compare(texts)
}

// versionChoice is the code system version that an include selects for a coding, with issues about it.
type versionChoice struct {
	index   uint32 // None if not loaded
	matches bool   // the coding has no version, or one that the include permits
	notes   []note
	unknown string // canonical of the missing version
	open    bool   // the code system is missing and the include does not enumerate codes
	unsure  bool   // the version of the include is missing; index is another version

	unchecked string // missing version of an enumerated code
}

// takeListed adapts a choice to an include that enumerates its codes. Such an include does not need the code system: a
// missing version is not an error, and no other version replaces it.
func (c *versionChoice) takeListed() {
	if !c.unsure {
		return
	}
	_, c.unchecked = outcome.Split(c.unknown)
	c.notes = slices.DeleteFunc(c.notes, func(n note) bool { return n.MessageID == unknownVersionID || n.MessageID == unknownVersionNoneID })
	c.index, c.unknown, c.matches, c.unsure = definitions.None, "", !c.failed(), false
}

// Message IDs of unknownVersion.
const (
	unknownVersionID     = "UNKNOWN_CODESYSTEM_VERSION"
	unknownVersionNoneID = "UNKNOWN_CODESYSTEM_VERSION_NONE"
)

// versionChooser selects the code system version for a coding.
type versionChooser struct {
	systems    *definitions.SystemTable
	rules      *compose.Rules
	inValueSet bool // with a value set instead of only the code system
}

// choose returns the code system version for a coding: the version in the include and the parameters, or the coding's
// version if they permit it. Without any version, it is the latest, as of date if set.
func (v *versionChooser) choose(c *parameters.Coding, declared, date string) versionChoice {
	wanted, rule := v.rules.Versions.Apply(c.System, declared)
	choice := versionChoice{index: v.codeSystem(c.System, wanted), matches: true}
	if wanted == "" && date != "" {
		index, _ := v.systems.CodeSystemAt(c.System, date) // None on error
		choice.index = v.ifPresent(index)
	}
	own := definitions.None
	if c.Version != "" {
		own = v.codeSystem(c.System, c.Version)
		v.compare(c, &choice, own, declared, wanted, rule.Name != "")
	}
	if choice.index == definitions.None && wanted != "" && !v.standsIn(c.System, wanted) {
		choice.add(unknownVersion(c, wanted, v.systems.VersionsOf(c.System)))
		choice.unknown = outcome.Canonical(c.System, wanted)
		choice.index = own
		if own == definitions.None {
			usual, _ := v.rules.Versions.ApplyDefault(c.System)
			choice.index = v.codeSystem(c.System, usual)
		}
		choice.matches, choice.unsure = false, true
	}
	required, _ := compose.VersionFor(v.rules.Versions.Required, c.System)
	if choice.index != definitions.None && required != "" && !definitions.MatchesVersion(v.systems.CodeSystems[choice.index].Version, required) {
		e := compose.WrongVersion(v.systems.CodeSystems[choice.index], required)
		choice.add(note{Issue: e.Issues()[0], part: "version", told: true})
	}
	return choice
}

// codeSystem returns the index of a code system with content, or None.
func (v *versionChooser) codeSystem(url, version string) uint32 {
	return v.ifPresent(v.systems.CodeSystem(url, version))
}

// ifPresent replaces a code system without content (R4 CodeSystem.content not-present) by None, because all codes would
// be unknown.
func (v *versionChooser) ifPresent(index uint32) uint32 {
	if index == definitions.None {
		return definitions.None
	}
	if content := v.systems.CodeSystems[index].Content; !content.HasConcepts() && content != definitions.ContentSupplement {
		return definitions.None
	}
	return index
}

// standsIn reports whether a stand-in for that version of a code system is loaded.
func (v *versionChooser) standsIn(url, version string) bool {
	return slices.ContainsFunc(v.systems.Versions(url), func(index uint32) bool { return v.systems.CodeSystems[index].StandsInFor(version) })
}

// compare compares the version of a coding with the version of an include.
func (v *versionChooser) compare(c *parameters.Coding, choice *versionChoice, own uint32, declared, wanted string, changed bool) {
	switch {
	case own != definitions.None && (wanted == "" || definitions.MatchesVersion(v.systems.CodeSystems[own].Version, wanted)):
		choice.index = own
		return
	case wanted == "" && choice.index != definitions.None && v.inValueSet:
		choice.mismatch("warning", "VALUESET_VALUE_MISMATCH_DEFAULT",
			"The code system '%s' version '%s' for the versionless include in the ValueSet include is different to the one in the value ('%s')",
			c.System, v.systems.CodeSystems[choice.index].Version, c.Version)
	case wanted != "" && changed:
		choice.mismatch("error", "VALUESET_VALUE_MISMATCH_CHANGED",
			"The code system '%s' version '%s' resulting from the version '%s' in the ValueSet include is different to the one in the value ('%s')",
			c.System, wanted, declared, c.Version)
	case wanted != "":
		choice.mismatch("error", "VALUESET_VALUE_MISMATCH",
			"The code system '%s' version '%s' in the ValueSet include is different to the one in the value ('%s')", c.System, wanted, c.Version)
	}
	choice.matches = false
	if own == definitions.None && len(v.systems.VersionsOf(c.System)) > 0 {
		choice.add(unknownVersion(c, c.Version, v.systems.VersionsOf(c.System)))
		choice.unknown = outcome.Canonical(c.System, c.Version)
	}
}

func (c *versionChoice) add(n note) { c.notes = append(c.notes, n) }

func (c *versionChoice) failed() bool { return slices.ContainsFunc(c.notes, note.isError) }

// mismatch adds an issue about a version other than the value set's.
func (c *versionChoice) mismatch(severity, id, format string, args ...any) {
	c.add(note{part: "version", told: severity == "error", Issue: outcome.Issue{
		Severity: severity, Code: "invalid", TxCode: "vs-invalid", MessageID: id, Text: fmt.Sprintf(format, args...),
	}})
}

// unknownVersion returns the issue about a missing code system version.
func unknownVersion(c *parameters.Coding, version string, versions []string) note {
	id := unknownVersionID
	if len(versions) == 0 {
		id = unknownVersionNoneID
	}
	return note{part: "system", told: true, Issue: outcome.Issue{
		Severity: "error", Code: "not-found", TxCode: "not-found", MessageID: id,
		Text: fmt.Sprintf("A definition for CodeSystem '%s' version '%s' could not be found, so the code cannot be validated. %s",
			c.System, version, definitions.ValidVersions(versions)),
	}}
}

// displayChecker validates the displays of codings.
type displayChecker struct {
	notes     *notes
	languages codesystem.Languages
	language  string // requested language
	lenient   bool   // a wrong display is only a warning
}

// check compares the display of a coding with those of its concept in the requested languages, ignoring case. For a
// user-assigned code, other displays may be valid.
func (d *displayChecker) check(c *parameters.Coding, texts []codesystem.Text, userAssigned bool) {
	if c.Display == "" || len(texts) == 0 {
		return
	}
	var valid, listed []*codesystem.Text
	var same *codesystem.Text
	for i := range texts {
		t := &texts[i]
		if equalDisplay(t.Value, c.Display) && (same == nil || d.speaks(t.Language)) {
			same = t
		}
		if d.speaks(t.Language) {
			valid = append(valid, t)
			if t.IsDisplay() {
				listed = append(listed, t)
			}
		}
	}
	switch {
	case same != nil && slices.Contains(valid, same):
		d.checkStanding(c, same, listed)
	case len(valid) > 0:
		d.wrong(c, listed, userAssigned)
	case same != nil:
		d.notes.note("information", "invalid", "invalid-display", "NO_VALID_DISPLAY_FOUND_NONE_FOR_LANG_OK", c, "display", true,
			"There are no valid display names found for the code %s#%s for language(s) '%s'. The display is '%s' which is a valid display for the default language",
			c.System, c.Code, d.language, c.Display)
	default:
		d.notes.note(d.severity(), "invalid", "invalid-display", "NO_VALID_DISPLAY_FOUND_NONE_FOR_LANG_ERR", c, "display", true,
			"Wrong Display Name '%s' for %s#%s. There are no valid display names found for language(s) '%s'. Default display is '%s'",
			c.Display, c.System, c.Code, d.language, texts[max(0, codesystem.FirstDisplay(texts))].Value)
	}
}

// checkStandIn adds an issue for a display other than name, with or without its suffix in parentheses.
func (d *displayChecker) checkStandIn(c *parameters.Coding, name []byte) {
	bare := name
	if at := bytes.LastIndex(name, []byte(" (")); at >= 0 {
		bare = name[:at]
	}
	if c.Display != "" && !equalDisplay(name, c.Display) && !equalDisplay(bare, c.Display) {
		d.notes.note("information", "informational", "display-comment", "", c, "display", true,
			"The display '%s' of the code %s#%s was not checked: only the name '%s' is known here", c.Display, c.System, c.Code, name)
	}
}

// speaks reports whether displays in a language are valid: it is requested, or unknown.
func (d *displayChecker) speaks(language string) bool {
	return language == "" || d.languages.Cover(language)
}

func (d *displayChecker) severity() string {
	if d.lenient {
		return "warning"
	}
	return "error"
}

// wrong adds an issue about an invalid display.
func (d *displayChecker) wrong(c *parameters.Coding, valid []*codesystem.Text, userAssigned bool) {
	var choices []string
	told := make(map[string]bool)
	for _, t := range valid {
		choice := "'" + string(t.Value) + "'"
		if t.Language != "" {
			choice += " (" + t.Language + ")"
		}
		if !told[choice] {
			told[choice] = true
			choices = append(choices, choice)
		}
	}
	is := "display is "
	if n := len(choices); n > 1 {
		is += fmt.Sprintf("one of %d choices: ", n)
		choices = []string{strings.Join(choices[:n-1], ", ") + " or " + choices[n-1]}
	}
	among := fmt.Sprintf("%s%s (for the language(s) '%s')", is, strings.Join(choices, ""), cmp.Or(d.language, "--"))
	if userAssigned {
		d.notes.note("information", "invalid", "invalid-display", "Display_Name_Not_Fixed_use_Supplement", c, "display", true,
			"The display name '%s' is not a known display name for %s#%s. Known %s. Use a supplement to define displays for user assigned codes",
			c.Display, c.System, c.Code, among)
		return
	}
	id, wrong := "Display_Name_for__should_be_one_of__instead_of", "Display Name"
	if slices.ContainsFunc(valid, func(t *codesystem.Text) bool { return equalButForSpaces(t.Value, c.Display) }) {
		id, wrong = "Display_Name_WS_for__should_be_one_of__instead_of", "whitespace in Display Name"
	}
	d.notes.note(d.severity(), "invalid", "invalid-display", id, c, "display", true,
		"Wrong %s '%s' for %s#%s. Valid %s", wrong, c.Display, c.System, c.Code, among)
}

// checkStanding adds an issue if a display is deprecated or withdrawn.
func (d *displayChecker) checkStanding(c *parameters.Coding, t *codesystem.Text, valid []*codesystem.Text) {
	if !bytes.Contains(t.Extension, []byte(`"withdrawn"`)) && !bytes.Contains(t.Extension, []byte(`"deprecated"`)) {
		return
	}
	var correct []string
	for _, other := range valid {
		if other.Display {
			correct = append(correct, `"`+string(other.Value)+`"`)
		}
	}
	d.notes.note("warning", "invalid", "display-comment", "INACTIVE_DISPLAY_FOUND", c, "display", false,
		"'%s' is no longer considered a correct display for code '%s' (status = deprecated). The correct display is one of %s.",
		c.Display, c.Code, strings.Join(correct, ", "))
}

func equalDisplay(have []byte, given string) bool { return strings.EqualFold(string(have), given) }

// equalButForSpaces compares displays ignoring case and extra spaces.
func equalButForSpaces(have []byte, given string) bool {
	return strings.EqualFold(strings.Join(strings.Fields(string(have)), " "), strings.Join(strings.Fields(given), " "))
}
