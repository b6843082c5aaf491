package terminology

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// note is an issue that validation finds.
type note struct {
	Issue
	part string // of the coding; placed tells where that is
	told bool   // in the message as well
}

// validator validates one request's codings.
type validator struct {
	library    *Library
	valueSet   *valueSet // nil: against the code system alone
	rules      Rules
	budget     *budget
	named      []string // canonicals of supplements
	languages  languages
	language   string // as it was asked for
	lenient    bool   // a wrong display is a warning
	memberOnly bool   // nothing but whether the codes are in the value set
	concrete   bool   // abstract codes are not allowed
	concept    bool   // a CodeableConcept: each coding is one of several

	notes     []note
	unknown   []string // canonicals of code system versions that are not here
	missing   []string // urls of code systems that are not here at all
	unchecked []string // canonicals of code systems that are not here and of which the value set lists a code
	imported  []*valueSet
	missed    []Missing // value sets that are imported and not here
	valid     bool      // what was answered
	noted     int       // bytes of text in notes
}

// verdict is what is found of one coding.
type verdict struct {
	coding     *coding
	member     bool // in the value set, or, without one, in the code system
	codeSystem *codeSystem
	entry      entry
	display    []byte
	normalized []byte // the code as the code system has it, where that differs by case
	status     string
	inactive   bool
	deprecated bool
}

// note adds an issue about a part of a coding.
func (v *validator) note(severity, code, txCode, id string, c *coding, part string, told bool, text string) {
	v.place(c, note{part: part, told: told, Issue: Issue{Severity: severity, Code: code, TxCode: txCode, MessageID: id, Text: text}})
}

// place adds a note, with the place of its part of a coding.
func (v *validator) place(c *coding, n note) {
	if c != nil {
		n.Expression = []string{c.place(n.part)}
	}
	v.notes = append(v.notes, n)
	v.noted += len(n.Text)
}

// validate validates a coding. An error means that the value set itself is at fault.
func (v *validator) validate(c *coding) (verdict, error) {
	d := verdict{coding: c, entry: entry{codeSystem: none, concept: none}}
	if err := v.budget.spend(codingSteps + v.rules.Versions.cost() + v.library.countVersions(c.system)); err != nil {
		return d, err
	}
	if c.system == "" || c.code == "" {
		v.incomplete(c)
		return d, nil
	}
	candidates, err := v.candidates(c)
	if err != nil {
		return d, err
	}
	choice, member, err := v.best(c, candidates)
	if err != nil {
		return d, err
	}
	for _, n := range choice.notes {
		v.place(c, n)
	}
	if choice.unknown != "" && !slices.Contains(v.unknown, choice.unknown) {
		v.unknown = append(v.unknown, choice.unknown)
	}
	if choice.index != none {
		d.codeSystem = v.library.codeSystems[choice.index]
	}
	if member != nil {
		d.member, d.entry = !choice.unsure, member.entry
	}
	if err := v.judge(c, &d, choice, member); err != nil {
		return d, err
	}
	if v.noted > maxNoted {
		return d, tooLong()
	}
	return d, nil
}

// codingSteps is what it takes to validate a coding, beside what is looked through for it.
const codingSteps = 20

// maxNoted bounds how long the texts of all notes may get, in bytes: each may list what a code system that the
// request brings along has a hundred thousand of.
const maxNoted = 4 << 20

// incomplete notes that a coding has no system, no code, or neither. Whether it may be so where it comes from,
// only the client knows; valid it is not.
func (v *validator) incomplete(c *coding) {
	lacks, text := "system", "Coding has no system. A code with no system has no defined meaning, and it cannot be validated. A system should be provided"
	switch {
	case c.code == "" && c.system == "":
		lacks, text = "system_or_code", "Coding has neither a system nor a code, so that there is nothing to validate. Both should be provided"
	case c.code == "":
		lacks, text = "code", "Coding has no code, so that it cannot be validated. A code should be provided"
	}
	v.note("warning", "invalid", "invalid-data", lacksPrefix+lacks+"__cannot_validate", c, "", true, text)
	if c.code != "" {
		v.notInValueSet(c)
	}
}

// lacksPrefix begins the message ids of incomplete.
const lacksPrefix = "Coding_has_no_"

// candidate is an include that may have a coding.
type candidate struct {
	versionChoice
	member *found
}

// candidates looks for a coding in the value set. Without a value set, the code system is the one place.
func (v *validator) candidates(c *coding) ([]candidate, error) {
	if v.valueSet == nil {
		choice := v.chooseVersion(c, "", v.rules.Date)
		if choice.index == none {
			return []candidate{{versionChoice: choice}}, nil
		}
		return []candidate{{versionChoice: choice}}, v.library.codeSystems[choice.index].usable("code system")
	}
	var list []candidate
	m := &membership{code: []byte(c.code), places: make(map[*valueSet][]found), composer: composer{library: v.library, rules: &v.rules, budget: v.budget}}
	m.choose = func(set *conceptSet) (uint32, bool) {
		if index := m.library.containedCodeSystem(m.path[len(m.path)-1], set.system, set.version); index != none {
			cs := m.library.codeSystems[index]
			list = append(list, candidate{versionChoice: versionChoice{index: index, matches: c.version == "" || matchesVersion(cs.version, c.version)}})
			return index, cs.url == c.system
		}
		if set.system != c.system || m.isExcludedSystem(set.system, set.version, none) {
			return m.library.codeSystem(set.system, set.version), set.system == c.system
		}
		choice := v.chooseVersion(c, set.version, cmp.Or(m.path[len(m.path)-1].lockedDate, v.rules.Date))
		if set.enumerated {
			choice.takeListed()
		}
		choice.open = choice.index == none && !set.enumerated && !v.memberOnly
		if !slices.ContainsFunc(list, func(o candidate) bool { return o.index == choice.index && len(o.notes) == len(choice.notes) }) {
			list = append(list, candidate{versionChoice: choice})
		}
		m.chosen = len(list)
		return choice.index, true
	}
	m.used, m.seen = &expansion{}, make(map[*valueSet]bool)
	if err := m.checkImports(v.valueSet); err != nil {
		return nil, err
	}
	members, err := m.find(v.valueSet)
	if err != nil {
		return nil, err
	}
	v.imported = m.imported
	if err := m.budget.spend(len(members) * len(list) / plainBytes); err != nil {
		return nil, err
	}
	for i := range members {
		at := slices.IndexFunc(list, func(o candidate) bool { return o.index == members[i].index && o.member == nil })
		if at >= 0 {
			list[at].member = &members[i]
		}
	}
	return list, nil
}

// best chooses among the includes that may have a coding: one that has it in a version that fits, active where
// only active ones are left in, with the display that is given, if there is one; else one of a version that fits,
// else the first.
func (v *validator) best(c *coding, list []candidate) (versionChoice, *found, error) {
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
		choice := versionChoice{index: v.codeSystem(c.system, c.version), matches: true}
		if versions := v.library.versionsOf(c.system); choice.index == none && c.version != "" && len(versions) > 0 {
			choice.add(unknownVersion(c, c.version, versions))
			choice.unknown = canonical(c.system, c.version)
			choice.index = v.codeSystem(c.system, "")
		}
		return choice, nil, nil
	}
	return list[best].versionChoice, list[best].member, nil
}

// rank says how good a candidate is.
func (v *validator) rank(c *coding, o *candidate) (n int, err error) {
	if o.matches && !o.failed() {
		n += 8
	}
	if o.member == nil {
		return n, nil
	}
	if n += 2; !o.member.excluded {
		n += 4
	}
	texts := v.library.shownTexts(nil, o.member.entry, v.valueSet.language, nil)
	if slices.ContainsFunc(texts, func(t shownText) bool { return equalDisplay(t.value, c.display) }) {
		n++
	}
	return n, v.compared(texts)
}

// compared pays for texts that were compared with a display.
func (v *validator) compared(texts []shownText) error {
	cost := 0
	for i := range texts {
		cost += 4 + len(texts[i].value)/4
	}
	return v.budget.spend(cost)
}

// judge notes what is wrong with a coding that was looked for.
func (v *validator) judge(c *coding, d *verdict, choice versionChoice, member *found) error {
	cs := d.codeSystem
	switch {
	case cs == nil && d.member:
		v.uncheckedSystem(c, choice.unchecked)
	case cs == nil:
		v.unknownSystem(c, choice.open)
	case cs.content == contentSupplement:
		v.note("error", "invalid", "invalid-data", "CODESYSTEM_CS_NO_SUPPLEMENT", c, "system", true,
			fmt.Sprintf("CodeSystem %s is a supplement, so can't be used as a value in Coding.system", cs.canonical()))
		d.codeSystem = nil
		return nil
	default:
		if !v.inCodeSystem(c, d) {
			return nil
		}
	}
	if member != nil && member.excluded {
		d.member = false
		v.note("error", "business-rule", "code-rule", "STATUS_CODE_WARNING_CODE", c, "code", true, fmt.Sprintf("The concept '%s' is valid but is not active", c.code))
	}
	// Where the code system that the value set means, or its version, is not here, it cannot be told whether the
	// code is in it.
	if unsure := choice.unknown != "" && choice.index != none && d.entry.concept != none; !d.member && !unsure && !choice.open && v.valueSet != nil {
		v.notInValueSet(c)
	}
	if d.codeSystem != nil && d.entry.concept != none || d.entry.listed != 0 {
		return v.describe(c, d)
	}
	return nil
}

// uncheckedSystem notes that a code is one that the value set lists, of a code system, or a version of it, that is not
// here. It is in the value set, as the expansion has it; whether the code system has it, others may know.
func (v *validator) uncheckedSystem(c *coding, version string) {
	if v.memberOnly {
		return
	}
	reference := canonical(c.system, version)
	if !slices.Contains(v.unchecked, reference) {
		v.unchecked = append(v.unchecked, reference)
	}
	v.note("warning", "not-found", "not-found", "UNKNOWN_CODESYSTEM", c, "system", true, fmt.Sprintf(
		"A definition for CodeSystem %s could not be found, so the code, which the value set lists, cannot be checked", reference))
}

// unknownSystem notes that a code system is not here, and that the value set needs it, if it does. What is no name
// of a code system at all is nothing that anybody could have.
func (v *validator) unknownSystem(c *coding, needed bool) {
	if _, ok := v.library.anyValueSet(c.system, ""); ok {
		v.note("error", "invalid", "invalid-data", "Terminology_TX_System_ValueSet2", c, "system", true,
			fmt.Sprintf("The Coding references a value set, not a code system ('%s')", c.system))
		return
	}
	list := &v.missing
	if needed {
		list = &v.unknown
	}
	if !slices.Contains(*list, c.system) {
		*list = append(*list, c.system)
	}
	if v.memberOnly {
		return
	}
	if !isAbsolute(c.system) {
		v.note("error", "invalid", "invalid-data", "Terminology_TX_System_Relative", c, "system", true,
			"Coding.system must be an absolute reference, not a local reference")
	}
	if c.version != "" {
		v.place(c, unknownVersion(c, c.version, nil))
		return
	}
	v.note("error", "not-found", "not-found", "UNKNOWN_CODESYSTEM", c, "system", true,
		fmt.Sprintf("A definition for CodeSystem %s could not be found, so the code cannot be validated", c.system))
}

// isAbsolute reports whether a uri begins with a scheme (RFC 3986 §4.3), as Coding.system must (R4 §2.24.0.1, uri).
func isAbsolute(uri string) bool {
	scheme, _, ok := strings.Cut(uri, ":")
	return ok && scheme != "" && !strings.ContainsAny(scheme, "/?#")
}

// inCodeSystem looks for a code in its code system, and reports whether to go on.
func (v *validator) inCodeSystem(c *coding, d *verdict) bool {
	cs := d.codeSystem
	concept, ok := cs.concept([]byte(c.code))
	switch {
	case ok:
		if d.entry.concept == none {
			d.entry.codeSystem, d.entry.concept = v.library.indexOf(cs), concept
		}
		if v.valueSet == nil {
			d.member = true
		}
		v.checkVersion(c, cs)
		return true
	case cs.content == contentFragment || cs.content != contentComplete && d.entry.listed != 0:
		v.note("warning", "code-invalid", "invalid-code", "UNKNOWN_CODE_IN_FRAGMENT", c, "code", false, fmt.Sprintf(
			"Unknown Code '%s' in the CodeSystem '%s' version '%s' - note that the code system is labeled as %s, so the code may be valid in some other fragment",
			c.code, cs.url, cs.version, article(string(cs.content))))
		d.member = d.member || v.valueSet == nil
		return true
	case !v.memberOnly:
		text := fmt.Sprintf("Unknown code '%s' in the CodeSystem '%s'", c.code, cs.url)
		id := "Unknown_Code_in"
		if cs.version != "" {
			text, id = text+" version '"+cs.version+"'", "Unknown_Code_in_Version"
		}
		v.note("error", "code-invalid", "invalid-code", id, c, "code", true, text)
		if cs.compositional {
			v.note("information", "informational", "processing-note", "", c, "code", false, fmt.Sprintf(
				"The code system '%s' is compositional: codes may be expressions of a grammar, which is not known here", cs.url))
		}
	}
	d.member = false
	return true
}

// checkVersion notes that a coding has no version, of a code system whose codes mean something only with one
// (R4 CodeSystem.versionNeeded).
func (v *validator) checkVersion(c *coding, cs *codeSystem) {
	if cs.versionNeeded && c.version == "" && !v.memberOnly {
		v.note("error", "required", "invalid-data", "", c, "version", true, fmt.Sprintf(
			"The code system '%s' says that a version is needed, and the code '%s' has none", cs.url, c.code))
	}
}

// notInValueSet notes that a coding is not in the value set.
func (v *validator) notInValueSet(c *coding) {
	if v.valueSet == nil {
		return
	}
	severity, txCode := "error", "not-in-vs"
	if v.concept {
		severity, txCode = "information", "this-code-not-in-vs"
	}
	v.note(severity, "code-invalid", txCode, "None_of_the_provided_codes_are_in_the_value_set_one", c, "code", !v.concept,
		fmt.Sprintf("The provided code '%s' was not found in the value set '%s'", c, v.valueSet.called()))
}

// missingValueSet turns the error for a value set that is imported and not here into a note; any other
// error is returned.
func (v *validator) missingValueSet(err error) error {
	var e *Error
	if !errors.As(err, &e) || len(e.Missing) == 0 || e.Missing[0].Kind != "ValueSet" {
		return err
	}
	v.missed = append(v.missed, e.Missing...)
	v.notes = append(v.notes, note{told: true, Issue: Issue{
		Severity: "error", Code: "not-found", TxCode: "not-found", MessageID: "Unable_to_resolve_value_Set_",
		Text: fmt.Sprintf("A definition for the value Set '%s' could not be found", e.Missing[0].Canonical),
	}})
	return nil
}
