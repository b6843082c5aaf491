package ecl

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// set is a set of concept numbers of the naive evaluator.
type set map[int]bool

// generated is a random expression: its text in brief and long syntax, and its evaluation according to the specification.
type generated struct {
	brief, long string
	evaluate    func() set
}

// generator generates expressions about a model.
type generator struct {
	*rand.Rand
	*model
	ancestors []set // by concept
}

func newGenerator(r *rand.Rand, m *model) *generator {
	g := &generator{Rand: r, model: m}
	for i := range m.concepts {
		above := set{}
		for changed := true; changed; {
			changed = false
			for _, pair := range m.isA {
				if (pair[0] == i || above[pair[0]]) && !above[pair[1]] {
					above[pair[1]], changed = true, true
				}
			}
		}
		g.ancestors = append(g.ancestors, above)
	}
	return g
}

func (g *generator) where(holds func(c int) bool) set {
	s := set{}
	for i := range g.concepts {
		if holds(i) {
			s[i] = true
		}
	}
	return s
}

func (g *generator) isParent(parent, child int) bool {
	return slices.Contains(g.isA, [2]int{child, parent})
}

func (g *generator) inHierarchy(c int) bool {
	return g.concepts[c].active && slices.ContainsFunc(g.isA, func(pair [2]int) bool { return pair[0] == c || pair[1] == c })
}

func some(s set, holds func(c int) bool) bool {
	for c := range s {
		if holds(c) {
			return true
		}
	}
	return false
}

// blank returns white space or a comment that is permitted between tokens.
func (g *generator) blank() string {
	return []string{" ", " ", " ", "\t", "\r\n", " /* a * comment ( */ "}[g.IntN(6)]
}

func (g *generator) anyCase(word string) string {
	switch g.IntN(4) {
	case 0:
		return strings.ToUpper(word)
	case 1:
		return strings.ToLower(word)
	}
	return word
}

func pick[T any](g *generator, list ...T) T { return list[g.IntN(len(list))] }

// concept returns a concept with a number from low on.
func (g *generator) concept(low int) (int, string, string) {
	i := low + g.IntN(len(g.concepts)-low)
	text := fmt.Sprint(g.concepts[i].id)
	return i, text, text + g.blank() + "| Any (term) \"x |"
}

func (g *generator) focus(depth, low int) generated {
	switch {
	case depth > 0 && g.IntN(3) == 0:
		x := g.expression(depth - 1)
		return generated{"(" + x.brief + ")", "(" + g.blank() + x.long + g.blank() + ")", x.evaluate}
	case g.IntN(8) == 0:
		return generated{"*", g.anyCase("any"), func() set { return g.where(g.inHierarchy) }}
	case g.IntN(30) == 0:
		return generated{`LOINC#54-6`, `LOINC#"54-6"` + g.blank() + "|x|", func() set { return set{20: true} }}
	case g.IntN(30) == 0:
		return generated{`LOINC#"a b"`, `LOINC#"a b" |x|`, func() set { return set{21: true} }}
	}
	i, brief, long := g.concept(low)
	return generated{brief, long, func() set { return set{i: true} }}
}

// naiveOperators define the hierarchy operators by a relation of a result r to a member m.
func (g *generator) naiveOperator(symbol string, r, m int) bool {
	active := g.concepts[r].active
	switch symbol {
	case "<":
		return g.ancestors[r][m]
	case "<<":
		return active && (r == m || g.ancestors[r][m])
	case "<!":
		return g.isParent(m, r)
	case "<<!":
		return active && (r == m || g.isParent(m, r))
	case ">":
		return g.ancestors[m][r]
	case ">>":
		return active && (r == m || g.ancestors[m][r])
	case ">!":
		return g.isParent(r, m)
	}
	return active && (r == m || g.isParent(r, m))
}

func (g *generator) subexpression(depth, low int) generated {
	x := g.members(depth, low)
	if g.IntN(2) == 0 {
		operator := hierarchyOperators[g.IntN(len(hierarchyOperators))]
		inner := x.evaluate
		x = generated{operator.symbol + x.brief, g.anyCase(operator.word) + g.blank() + x.long, func() set {
			s := inner()
			switch operator.symbol {
			case "!!>":
				return g.where(func(c int) bool { return s[c] && !some(s, func(m int) bool { return g.ancestors[c][m] }) })
			case "!!<":
				return g.where(func(c int) bool { return s[c] && !some(s, func(m int) bool { return g.ancestors[m][c] }) })
			}
			return g.where(func(c int) bool { return some(s, func(m int) bool { return g.naiveOperator(operator.symbol, c, m) }) })
		}}
		if operator.symbol[0] == '!' {
			x.long = strings.Replace(x.long, operator.symbol, operator.word, 1)
		}
	}
	for g.IntN(6) == 0 {
		if g.IntN(2) == 0 {
			x = g.conceptFilter(x)
		} else {
			x = g.descriptionFilter(x)
		}
	}
	if g.IntN(12) == 0 {
		x = g.history(depth, x)
	}
	return x
}

func (g *generator) history(depth int, x generated) generated {
	inner := x.evaluate
	var brief, long string
	refsets := func() set { return set{1: true, 2: true, 3: true} }
	switch g.IntN(4) {
	case 0:
		brief, long = "HISTORY-MIN", "history_min"
		refsets = func() set { return set{2: true} }
	case 1:
		brief, long = "HISTORY", "History-Max"
	case 2:
		brief, long = "HISTORY (*)", "HISTORY"
	default:
		y := g.expression(min(depth, 1) - 1)
		brief, long, refsets = "HISTORY ("+y.brief+")", "history("+y.long+")", y.evaluate
	}
	return generated{x.brief + "{{+" + brief + "}}", x.long + g.blank() + "{{" + g.blank() + "+" + g.blank() + long + " }}", func() set {
		s, sets := inner(), refsets()
		result := g.where(func(c int) bool { return s[c] })
		for _, row := range g.rows {
			column := slices.Index(g.columns[row.refset], "targetComponentId")
			if column < 0 || !row.active || !sets[row.refset] {
				continue
			}
			for target := range s {
				if fmt.Sprint(g.concepts[target].id) == row.fields[column] {
					result[row.component] = true
				}
			}
		}
		return result
	}}
}

func (g *generator) expression(depth int) generated {
	x := g.subexpression(depth, 0)
	if depth < 0 {
		return x
	}
	switch g.IntN(5) {
	case 0:
		return g.compound(depth, x)
	case 1, 2:
		r := g.refinement(depth, false)
		inner := x.evaluate
		return generated{x.brief + ":" + r.brief, x.long + g.blank() + ":" + r.long, func() set {
			s := inner()
			return g.where(func(c int) bool { return s[c] && g.concepts[c].active && r.holds(c, nil) })
		}}
	case 3:
		return g.dotted(depth, x)
	}
	return x
}

func (g *generator) compound(depth int, x generated) generated {
	operator, count := pick(g, "AND", "OR", "MINUS"), 2
	if operator != "MINUS" {
		count += g.IntN(2)
	}
	for range count - 1 {
		y, left := g.subexpression(depth-1, 0), x.evaluate
		symbol := " " + operator + " "
		if operator == "AND" && g.IntN(2) == 0 {
			symbol = ","
		}
		x = generated{x.brief + symbol + y.brief, x.long + g.blank() + g.anyCase(operator) + g.blank() + y.long, func() set {
			a, b := left(), y.evaluate()
			return g.where(func(c int) bool {
				switch operator {
				case "AND":
					return a[c] && b[c]
				case "OR":
					return a[c] || b[c]
				}
				return a[c] && !b[c]
			})
		}}
	}
	return x
}

func (g *generator) dotted(depth int, x generated) generated {
	for range 1 + g.IntN(2) {
		name, left := g.attributeName(depth), x.evaluate
		x = generated{x.brief + " ." + name.brief, x.long + g.blank() + "." + g.blank() + name.long, func() set {
			sources, result, types := left(), set{}, name.types()
			for _, r := range g.relations {
				if sources[r.source] && types(r.kind) {
					result[r.destination] = true
				}
			}
			return result
		}}
	}
	return x
}

// attributeName is an expression, or any attribute.
type attributeName struct{ generated }

func (n attributeName) types() func(int) bool {
	if n.brief == "*" {
		return func(int) bool { return true }
	}
	s := n.evaluate()
	return func(kind int) bool { return s[kind] }
}

func (g *generator) attributeName(depth int) attributeName {
	if g.IntN(3) > 0 {
		i := 10 + g.IntN(6)
		text := fmt.Sprint(g.concepts[i].id)
		switch g.IntN(3) {
		case 0:
			return attributeName{generated{"<<" + text, "descendantOrSelfOf " + text + " |attribute|", func() set {
				return g.where(func(c int) bool { return c == i || g.ancestors[c][i] })
			}}}
		case 1:
			return attributeName{generated{"*", "ANY", nil}}
		}
		return attributeName{generated{text, text, func() set { return set{i: true} }}}
	}
	return attributeName{g.subexpression(depth-1, 10)}
}

// generatedRefinement is a condition for a concept; group restricts relationships to a group, unless it is nil.
type generatedRefinement struct {
	brief, long string
	holds       func(c int, group *int) bool
}

func (g *generator) refinement(depth int, inGroup bool) generatedRefinement {
	r := g.subrefinement(depth, inGroup)
	operator := pick(g, "AND", "OR")
	for range max(0, g.IntN(4)-1) {
		left, right := r, g.subrefinement(depth, inGroup)
		symbol := " " + operator + " "
		if operator == "AND" && g.IntN(2) == 0 {
			symbol = ","
		}
		r = generatedRefinement{left.brief + symbol + right.brief, left.long + g.blank() + g.anyCase(operator) + g.blank() + right.long, func(c int, group *int) bool {
			if operator == "AND" {
				return left.holds(c, group) && right.holds(c, group)
			}
			return left.holds(c, group) || right.holds(c, group)
		}}
	}
	return r
}

func (g *generator) subrefinement(depth int, inGroup bool) generatedRefinement {
	switch {
	case depth > 0 && g.IntN(6) == 0:
		r := g.refinement(depth-1, inGroup)
		return generatedRefinement{"(" + r.brief + ")", "(" + g.blank() + r.long + g.blank() + ")", r.holds}
	case inGroup || g.IntN(2) == 0:
		return g.attribute(depth)
	}
	brief, long, allows := g.cardinality()
	r := g.refinement(depth-1, true)
	return generatedRefinement{brief + "{" + r.brief + "}", long + "{" + g.blank() + r.long + g.blank() + "}", func(c int, _ *int) bool {
		n := 0
		for _, group := range g.groups(c) {
			if r.holds(c, &group) {
				n++
			}
		}
		return allows(n)
	}}
}

// groups returns the groups of a concept. Ungrouped relationships are groups with negative numbers.
func (g *generator) groups(c int) (list []int) {
	for i, r := range g.relations {
		if r.source == c {
			list = append(list, groupOf(r.group, i))
		}
	}
	for i, v := range g.values {
		if v.source == c {
			list = append(list, groupOf(v.group, i+len(g.relations)))
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}

func groupOf(group uint16, i int) int {
	if group == 0 {
		return -1 - i
	}
	return int(group)
}

func (g *generator) cardinality() (brief, long string, allows func(n int) bool) {
	low := g.IntN(3)
	high := low + g.IntN(3)
	switch g.IntN(4) {
	case 0:
		return fmt.Sprintf("[%d..%d]", low, high), fmt.Sprintf("[ %d to %d ]", low, high), func(n int) bool { return n >= low && n <= high }
	case 1:
		return fmt.Sprintf("[%d..*]", low), fmt.Sprintf("[%d TO many]", low), func(n int) bool { return n >= low }
	}
	return "", "", func(n int) bool { return n > 0 }
}

func (g *generator) attribute(depth int) generatedRefinement {
	brief, long, allows := g.cardinality()
	name := g.attributeName(depth)
	operator := pick(g, "=", "=", "=", "!=")
	longOperator := operator
	if operator == "!=" {
		longOperator = pick(g, "<>", "NOT =", "not=")
	}
	if g.IntN(4) == 0 {
		return g.concreteAttribute(brief, long, allows, name, operator, longOperator)
	}
	value := g.subexpression(depth-1, 10)
	isAny := value.brief == "*"
	reverse, longReverse := "", ""
	if g.IntN(4) == 0 {
		reverse, longReverse = "R ", "reverseOf "
	}
	return generatedRefinement{brief + reverse + name.brief + operator + value.brief, long + longReverse + name.long + g.blank() + longOperator + g.blank() + value.long, func(c int, group *int) bool {
		types, values := name.types(), set{}
		if !isAny {
			values = value.evaluate()
		}
		n, sources := 0, set{}
		for i, r := range g.relations {
			other := r.destination
			if reverse != "" {
				other = r.source
			}
			if !types(r.kind) || (isAny || values[other]) != (operator == "=") {
				continue
			}
			switch {
			case reverse != "" && r.destination == c:
				sources[r.source] = true
			case reverse == "" && r.source == c && (group == nil || *group == groupOf(r.group, i)):
				n++
			}
		}
		return allows(n + len(sources))
	}}
}

func (g *generator) concreteAttribute(brief, long string, allows func(int) bool, name attributeName, operator, longOperator string) generatedRefinement {
	target := pick(g, modelValues...)
	number, isNumber := parseNumber(target)
	if isNumber && g.IntN(2) == 0 {
		operator = pick(g, "<", "<=", ">", ">=")
		longOperator = operator
	}
	text := target
	if isNumber && g.IntN(2) == 0 {
		text = fmt.Sprintf("#%+.2f", number)
	}
	return generatedRefinement{brief + name.brief + operator + target, long + name.long + " " + longOperator + g.blank() + text, func(c int, group *int) bool {
		n, types := 0, name.types()
		for i, v := range g.values {
			if v.source != c || !types(v.kind) || group != nil && *group != groupOf(v.group, i+len(g.relations)) || v.value[0] != target[0] && (v.value[0] != 't' && v.value[0] != 'f' || target[0] != 't' && target[0] != 'f') {
				continue
			}
			matches := (v.value == target) == (operator == "=")
			if value, ok := parseNumber(v.value); ok {
				matches = map[string]bool{"=": value == number, "!=": value != number, "<": value < number, "<=": value <= number, ">": value > number, ">=": value >= number}[operator]
			}
			if matches {
				n++
			}
		}
		return allows(n)
	}}
}

// generatedCriterion is a condition for a component with the columns of status and others.
type generatedCriterion[T any] struct {
	brief, long string
	holds       func(T) bool
	isActive    bool
}

func (g *generator) statusCriterion() generatedCriterion[status] {
	operator := pick(g, "=", "!=")
	isEqual := operator == "="
	switch g.IntN(3) {
	case 0:
		value := pick(g, "0", "1", "*")
		long := map[string][]string{"0": {"false", "FALSE", `"false"`}, "1": {"true", "1"}, "*": {"any", `"*"`}}[value]
		return generatedCriterion[status]{"active" + operator + value, g.anyCase("active") + operator + pick(g, long...), func(s status) bool {
			return (value == "*" || s.active == (value == "1")) == isEqual
		}, true}
	case 1:
		id := pick[uint64](g, coreModule, otherModule)
		brief, ids := fmt.Sprint(id), []uint64{id}
		if g.IntN(3) == 0 {
			brief, ids = fmt.Sprintf("(%d %d)", coreModule, otherModule), []uint64{coreModule, otherModule}
		}
		return generatedCriterion[status]{"moduleId " + operator + brief, g.anyCase("moduleid") + operator + strings.Replace(brief, " ", " |term| ", 1), func(s status) bool {
			return slices.Contains(ids, s.module) == isEqual
		}, false}
	}
	operator = pick(g, "=", "!=", "<", "<=", ">", ">=")
	date := pick(g, "20200131", "20210731", "20260131", "")
	value, _ := strconv.Atoi(date)
	text := fmt.Sprintf("effectiveTime%s%q", operator, date)
	return generatedCriterion[status]{text, g.anyCase("EFFECTIVETIME") + g.blank() + fmt.Sprintf("%s(%q)", operator, date), func(s status) bool {
		t := int(s.effectiveTime)
		known := t > 0 && value > 0
		return map[string]bool{"=": t == value, "!=": t != value, "<": known && t < value, "<=": known && t <= value, ">": known && t > value, ">=": known && t >= value}[operator]
	}, false}
}

// filter returns the texts of a filter with criteria, and whether one of them is about active components.
func (g *generator) filter(x generated, kind string, briefs, longs []string) (brief, long string) {
	return x.brief + "{{" + kind + " " + strings.Join(briefs, ",") + "}}", x.long + g.blank() + "{{ " + strings.ToLower(kind) + " " + strings.Join(longs, g.blank()+","+g.blank()) + " }}"
}

func (g *generator) conceptFilter(x generated) generated {
	var tests []func(c int) bool
	var briefs, longs []string
	isAny, hasActive := x.brief == "*", false
	for range 1 + g.IntN(2) {
		if g.IntN(4) == 0 {
			operator, token := pick(g, "=", "!="), pick(g, "primitive", "defined")
			id := map[string]uint64{"primitive": 900000000000074008, "defined": 900000000000073002}[token]
			briefs, longs = append(briefs, "definitionStatus"+operator+token), append(longs, fmt.Sprint("definitionStatus ", operator, "(", g.anyCase(token), ")"))
			tests = append(tests, func(c int) bool { return (g.concepts[c].DefinitionStatus == id) == (operator == "=") })
			continue
		}
		s := g.statusCriterion()
		hasActive = hasActive || s.isActive
		briefs, longs = append(briefs, s.brief), append(longs, s.long)
		tests = append(tests, func(c int) bool {
			m := &g.concepts[c]
			return s.holds(status{active: m.active, module: m.Module, effectiveTime: m.Metadata.EffectiveTime})
		})
	}
	brief, long := g.filter(x, "C", briefs, longs)
	inner := x.evaluate
	return generated{brief, long, func() set {
		s := inner()
		return g.where(func(c int) bool {
			in := s[c] || isAny && hasActive
			for _, t := range tests {
				in = in && t(c)
			}
			return in
		})
	}}
}

func (g *generator) descriptionFilter(x generated) generated {
	var criteria []generatedCriterion[*Description]
	for range 1 + g.IntN(3) {
		criteria = append(criteria, g.descriptionCriterion())
	}
	var briefs, longs []string
	hasActive := false
	for _, c := range criteria {
		briefs, longs, hasActive = append(briefs, c.brief), append(longs, c.long), hasActive || c.isActive
	}
	brief, long := g.filter(x, pick(g, "D", ""), briefs, longs)
	inner := x.evaluate
	return generated{brief, long, func() set {
		s := inner()
		return g.where(func(c int) bool {
			return s[c] && slices.ContainsFunc(g.descriptions, func(d modelDescription) bool {
				matches := d.concept == c && (d.Active || hasActive)
				for _, t := range criteria {
					matches = matches && t.holds(&d.Description)
				}
				return matches
			})
		})
	}}
}

func (g *generator) descriptionCriterion() generatedCriterion[*Description] {
	operator := pick(g, "=", "=", "!=")
	isEqual := operator == "="
	c := generatedCriterion[*Description]{}
	var holds func(d *Description) bool
	switch g.IntN(7) {
	case 0:
		text := pick(g, "heart", "att he", "HEP", "f b", "structure of")
		c.brief, c.long = "term"+operator+strconv.Quote(text), g.anyCase("term")+operator+g.anyCase("match")+":"+strconv.Quote(" "+text+" ")
		holds = func(d *Description) bool {
			for word := range strings.FieldsSeq(strings.ToLower(text)) {
				if !slices.ContainsFunc(strings.Fields(strings.ToLower(string(d.Term))), func(w string) bool { return strings.HasPrefix(w, word) }) {
					return false
				}
			}
			return true
		}
	case 1:
		pattern := pick(g, "heart*", "*ic", "*e*r*", "liver", "a*", "*")
		c.brief, c.long = "term"+operator+"wild:"+strconv.Quote(pattern), "term "+operator+"( wild : "+strconv.Quote(pattern)+" )"
		expression := regexp.MustCompile("(?i)^" + strings.ReplaceAll(pattern, "*", ".*") + "$")
		holds = func(d *Description) bool { return expression.Match(d.Term) }
	case 2:
		c.brief, c.long = "language"+operator+"sv", g.anyCase("language")+" "+operator+"(SV)"
		holds = func(d *Description) bool { return d.Language == "sv" }
	case 3:
		i := g.IntN(3)
		tokens := [][2]string{{"syn", "synonym"}, {"fsn", "fullySpecifiedName"}, {"def", "definition"}}
		c.brief, c.long = "type"+operator+tokens[i][0], "type"+operator+"( "+g.anyCase(tokens[i][1])+" )"
		holds = func(d *Description) bool {
			return d.Type == []uint64{900000000000013009, 900000000000003001, 900000000000550004}[i]
		}
	case 4:
		c.brief, c.long = "dialect"+operator+"en-us(prefer)", g.anyCase("dialect")+operator+"(EN-US)(Preferred)"
		holds = func(d *Description) bool { return slices.Contains(d.Dialects, Dialect{usEnglish, 900000000000548007}) }
	case 5:
		c.brief, c.long = fmt.Sprintf("dialectId %s(%d(accept) %d)", operator, usEnglish, gbEnglish), fmt.Sprintf("dialect %s(en-us (900000000000549004) en-gb)", operator)
		holds = func(d *Description) bool {
			return slices.ContainsFunc(d.Dialects, func(x Dialect) bool { return x.Refset == gbEnglish || x.Acceptability == 900000000000549004 })
		}
	default:
		s := g.statusCriterion()
		return generatedCriterion[*Description]{s.brief, s.long, func(d *Description) bool {
			return s.holds(status{active: d.Active, module: d.Module, effectiveTime: d.EffectiveTime})
		}, s.isActive}
	}
	c.holds = func(d *Description) bool { return holds(d) == isEqual }
	return c
}

// members returns a focus concept, with or without an operator for reference sets.
func (g *generator) members(depth, low int) generated {
	switch g.IntN(8) {
	case 0:
		return g.memberOf()
	case 1:
		x := g.focus(depth, low)
		return generated{"^R " + x.brief, "refsetContainingAny " + x.long, func() set {
			s, result := x.evaluate(), set{}
			for _, row := range g.rows {
				if row.active && s[row.component] {
					result[row.refset] = true
				}
			}
			return result
		}}
	}
	return g.focus(depth, low)
}

func (g *generator) memberOf() generated {
	refset := pick(g, simpleRefset, mapRefset, 2)
	text := fmt.Sprint(g.concepts[refset].id)
	field := pick(g, "", "", "referencedComponentId")
	switch {
	case refset == mapRefset && g.IntN(2) == 0:
		field = "correlationId"
	case refset == 2 && g.IntN(2) == 0:
		field = "targetComponentId"
	}
	brief, long := "^"+text, g.anyCase("memberOf")+" "+text
	if field != "" {
		brief, long = "^["+field+"]"+text, g.anyCase("memberOf")+"[ "+field+" ]"+text
	}
	var tests []func(row modelRow) bool
	var briefs, longs []string
	hasActive := false
	for range max(0, g.IntN(5)-2) {
		c := g.memberCriterion(refset)
		tests, briefs, longs, hasActive = append(tests, c.holds), append(briefs, c.brief), append(longs, c.long), hasActive || c.isActive
	}
	x := generated{brief: brief, long: long}
	if len(tests) > 0 {
		x.brief, x.long = g.filter(x, "M", briefs, longs)
	}
	x.evaluate = func() set {
		result := set{}
		for _, row := range g.rows {
			matches := row.refset == refset && (row.active || hasActive)
			for _, t := range tests {
				matches = matches && t(row)
			}
			if column := slices.Index(g.columns[refset], field); matches && column >= 0 {
				result[slices.IndexFunc(g.concepts, func(c modelConcept) bool { return fmt.Sprint(c.id) == row.fields[column] })] = true
			} else if matches {
				result[row.component] = true
			}
		}
		return result
	}
	return x
}

func (g *generator) memberCriterion(refset int) generatedCriterion[modelRow] {
	if refset != mapRefset || g.IntN(3) == 0 {
		s := g.statusCriterion()
		return generatedCriterion[modelRow]{s.brief, s.long, func(row modelRow) bool {
			return s.holds(status{active: row.active, module: row.module, effectiveTime: row.time})
		}, s.isActive}
	}
	operator := pick(g, "=", "!=")
	isEqual := operator == "="
	switch g.IntN(4) {
	case 0:
		return generatedCriterion[modelRow]{"mapGroup" + operator + "#2", "mapGroup " + operator + " #2.0", func(row modelRow) bool { return (row.fields[0] == "2") == isEqual }, false}
	case 1:
		return generatedCriterion[modelRow]{"mapTarget" + operator + `"J45"`, "mapTarget " + operator + ` ( match:"J45" )`, func(row modelRow) bool { return strings.HasPrefix(row.fields[1], "J45") == isEqual }, false}
	case 2:
		return generatedCriterion[modelRow]{"mapTarget" + operator + `wild:""`, "mapTarget" + operator + `(wild:"")`, func(row modelRow) bool { return (row.fields[1] == "") == isEqual }, false}
	}
	x := g.subexpression(0, 16)
	if x.brief == "*" {
		x = generated{"100020", "100020", func() set { return set{20: true} }}
	}
	return generatedCriterion[modelRow]{"correlationId" + operator + x.brief, "correlationId " + operator + " " + x.long, func(row modelRow) bool {
		return some(x.evaluate(), func(c int) bool { return fmt.Sprint(g.concepts[c].id) == row.fields[2] }) == isEqual
	}, false}
}
