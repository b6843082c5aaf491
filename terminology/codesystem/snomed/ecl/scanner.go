package ecl

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// scanner reads tokens as the parser requests them, because the meaning of characters depends on the context. It also builds the
// canonical text. Its methods panic with a failure.
type scanner struct {
	text string
	pos  int // byte offset

	expected   []string // labels of tokens that were not found at the offset expectedAt
	expectedAt int
	isAhead    bool // ahead is reading: labels are not recorded

	canonical []byte
}

func isLetter(c byte) bool { return c|0x20 >= 'a' && c|0x20 <= 'z' }
func isDigit(c byte) bool  { return c >= '0' && c <= '9' }

// emit appends a token to the canonical text.
func (s *scanner) emit(token string) {
	if len(s.canonical) > 0 {
		s.canonical = append(s.canonical, ' ')
	}
	s.canonical = append(s.canonical, token...)
}

// fail reports an error at a byte offset.
func (s *scanner) fail(at int, format string, args ...any) {
	at = min(at, len(s.text))
	panic(failure{&SyntaxError{Column: utf8.RuneCountInString(s.text[:at]) + 1, Message: fmt.Sprintf(format, args...)}})
}

// failExpected reports that label was expected, or one of the labels that were recorded at the current position.
func (s *scanner) failExpected(label string) {
	s.isAhead = false
	s.expect(label)
	found := "the end"
	if fields := strings.Fields(s.text[s.pos:]); len(fields) > 0 {
		found = fmt.Sprintf("%.32q", fields[0])
	}
	last := len(s.expected) - 1
	list := strings.Join(s.expected[:last], ", ")
	s.fail(s.pos, "expected %s, found %s", strings.TrimPrefix(list+" or "+s.expected[last], " or "), found)
}

// expect records the label of a token that was not found at the current position.
func (s *scanner) expect(label string) {
	if s.isAhead {
		return
	}
	if s.pos != s.expectedAt {
		s.expected, s.expectedAt = s.expected[:0], s.pos
	}
	if !slices.Contains(s.expected, label) {
		s.expected = append(s.expected, label)
	}
}

// at returns the byte at the current position, or 0 at the end.
func (s *scanner) at() byte {
	if s.pos < len(s.text) {
		return s.text[s.pos]
	}
	return 0
}

// space skips white space and comments.
func (s *scanner) space() {
	for {
		switch c := s.at(); {
		case c == ' ' || c == '\t' || c == '\r' || c == '\n':
			s.pos++
		case c == '/' && strings.HasPrefix(s.text[s.pos:], "/*"):
			end := strings.Index(s.text[s.pos+2:], "*/")
			if end < 0 {
				s.fail(s.pos, `comment has no end: expected "*/"`)
			}
			s.pos += end + 4
		default:
			return
		}
	}
}

// next reports whether token follows after white space. It skips the white space.
func (s *scanner) next(token string) bool {
	s.space()
	return strings.HasPrefix(s.text[s.pos:], token)
}

// skip skips token if it follows.
func (s *scanner) skip(token string) bool {
	if s.next(token) {
		s.pos += len(token)
		return true
	}
	s.expect(strconv.Quote(token))
	return false
}

// accept skips and emits token if it follows.
func (s *scanner) accept(token string) bool {
	if !s.skip(token) {
		return false
	}
	s.emit(token)
	return true
}

// require skips and emits token, or fails.
func (s *scanner) require(token string) {
	s.requireSilently(token)
	s.emit(token)
}

// requireSilently skips token, or fails.
func (s *scanner) requireSilently(token string) {
	if !s.skip(token) {
		s.failExpected(strconv.Quote(token))
	}
}

// run returns the longest text at the current position whose bytes all match.
func (s *scanner) run(matches func(c byte) bool) string {
	end := s.pos
	for end < len(s.text) && matches(s.text[end]) {
		end++
	}
	return s.text[s.pos:end]
}

// word returns the letters that follow after white space.
func (s *scanner) word() string {
	s.space()
	return s.run(isLetter)
}

// acceptWord skips the word that follows if it is one of words, ignoring case, and returns its spelling in words; otherwise "".
func (s *scanner) acceptWord(words ...string) string {
	word := s.word()
	found := findWord(words, word)
	if found == "" || strings.HasPrefix(s.text[s.pos+len(word):], "#") { // an alternate identifier
		return ""
	}
	s.pos += len(word)
	return found
}

// findWord returns the spelling of word in words, ignoring case, or "".
func findWord(words []string, word string) string {
	for _, w := range words {
		if strings.EqualFold(w, word) {
			return w
		}
	}
	return ""
}

// ahead returns the result of read and restores the position.
func (s *scanner) ahead(read func() bool) bool {
	at := s.pos
	s.isAhead = true
	defer func() { s.pos, s.isAhead = at, false }()
	return read()
}

// parseOperands parses operands after the first one. It returns an empty operator if no operator follows.
func parseOperands[T any](s *scanner, first T, parse func() T, operators ...string) (operator string, operands []T) {
	operands = []T{first}
	operator = s.connective(operators...)
	for next := operator; next != ""; {
		operands = append(operands, parse())
		s.space()
		at := s.pos
		if next = s.connective(operators...); next != "" && (next != operator || operator == "MINUS") {
			s.fail(at, "expected parentheses: %s cannot follow %s without them", next, operator)
		}
	}
	return operator, operands
}

// connective skips one of the operators and returns it, or "". A comma means AND.
func (s *scanner) connective(operators ...string) string {
	operator := s.acceptWord(operators...)
	if operator == "" && s.skip(",") {
		operator = operators[0]
	}
	if operator != "" {
		s.emit(operator)
		return operator
	}
	for _, operator := range operators {
		s.expect(operator)
	}
	return ""
}

// identifier parses an SCTID.
func (s *scanner) identifier() uint64 {
	s.space()
	digits := s.run(isDigit)
	if digits == "" {
		s.failExpected("an identifier")
	}
	if len(digits) < 6 || len(digits) > 18 || digits[0] == '0' {
		s.fail(s.pos, "expected an identifier of 6 to 18 digits, found %.32q", digits)
	}
	s.pos += len(digits)
	s.emit(digits)
	id, _ := strconv.ParseUint(digits, 10, 64) // 18 digits are within the range
	return id
}

// term skips a term between vertical bars. Terms are not compared with the content: they may be outdated or translated.
func (s *scanner) term() {
	if !s.skip("|") {
		return
	}
	term, _, closed := strings.Cut(s.text[s.pos:], "|")
	switch {
	case !closed:
		s.fail(len(s.text), `expected "|" at the end of the term, found the end`)
	case strings.TrimSpace(term) == "":
		s.failExpected("a term")
	}
	s.pos += len(term) + 1
}

// isAlternateID reports whether an alternate identifier without leading quote follows.
func (s *scanner) isAlternateID() bool {
	scheme := s.scheme()
	return scheme != "" && strings.HasPrefix(s.text[s.pos+len(scheme):], "#")
}

// scheme returns the alias of a scheme or of a dialect that follows, or "".
func (s *scanner) scheme() string {
	if !isLetter(s.at()) {
		return ""
	}
	return s.run(func(c byte) bool { return isLetter(c) || isDigit(c) || c == '-' })
}

// count parses a nonNegativeIntegerValue.
func (s *scanner) count() uint32 {
	s.space()
	digits := s.run(isDigit)
	if digits == "" || len(digits) > 1 && digits[0] == '0' || len(digits) > 9 {
		s.failExpected("an integer of up to 9 digits")
	}
	s.pos += len(digits)
	n, _ := strconv.ParseUint(digits, 10, 32) // 9 digits are within the range
	return uint32(n)
}

// comparison parses a comparison operator. ordered permits < and so on.
func (s *scanner) comparison(ordered bool) string {
	for _, operator := range []string{"=", "!=", "<>", "<=", "<", ">=", ">"} {
		if s.next(operator) && (ordered || operator[0] != '<' && operator[0] != '>' || operator == "<>") {
			s.pos += len(operator)
			operator = strings.Replace(operator, "<>", "!=", 1)
			s.emit(operator)
			return operator
		}
	}
	if s.acceptWord("not") == "" || !s.skip("=") {
		s.failExpected(`"=" or another comparison operator`)
	}
	s.emit("!=")
	return "!="
}

// lowerWord skips and emits a word and returns it in lower case.
func (s *scanner) lowerWord() string {
	word := s.word()
	s.pos += len(word)
	word = strings.ToLower(word)
	s.emit(word)
	return word
}

// number parses a numericValue and returns it in canonical form: without plus sign and trailing zeros.
func (s *scanner) number() string {
	s.pos++
	at := s.pos
	negative := s.at() == '-'
	if negative || s.at() == '+' {
		s.pos++
	}
	whole, fraction := s.run(isDigit), ""
	s.pos += len(whole)
	if whole == "" || len(whole) > 1 && whole[0] == '0' {
		s.fail(at, "expected a number without leading zeros after #")
	}
	if s.at() == '.' && s.pos+1 < len(s.text) && isDigit(s.text[s.pos+1]) {
		s.pos++
		fraction = s.run(isDigit)
		s.pos += len(fraction)
	}
	text := "#" + whole
	if fraction = strings.TrimRight(fraction, "0"); fraction != "" {
		text += "." + fraction
	}
	if negative && text != "#0" {
		text = "#-" + text[1:]
	}
	s.emit(text)
	return text
}

// quoted parses a string in double quotes and returns it with its escapes: \" and \\, and \* if stars can be escaped.
func (s *scanner) quoted(stars bool) string {
	s.requireSilently(`"`)
	from := s.pos
	for ; s.at() != '"'; s.pos++ {
		if s.pos >= len(s.text) {
			s.failExpected(`"\""`)
		}
		if s.at() == '\\' {
			if s.pos++; s.at() != '"' && s.at() != '\\' && (s.at() != '*' || !stars) {
				s.failExpected("a character that can be escaped")
			}
		}
	}
	s.pos++
	return s.text[from : s.pos-1]
}

var escapes = strings.NewReplacer(`\\`, `\`, `\"`, `"`, `\*`, `*`)

func unescape(raw string) string { return escapes.Replace(raw) }

// parseSet parses one item, or items in parentheses. The canonical text of one item has no parentheses.
func parseSet[T any](s *scanner, item func() T) []T {
	if !s.accept("(") {
		return []T{item()}
	}
	from := len(s.canonical) - 2 // of " ("
	list := parseItems(s, item)
	if len(list) == 1 {
		s.canonical = slices.Delete(s.canonical[:len(s.canonical)-2], from, from+2)
	}
	return list
}

// parseItems parses items up to a closing parenthesis.
func parseItems[T any](s *scanner, item func() T) []T {
	list := []T{item()}
	for !s.accept(")") {
		list = append(list, item())
	}
	return list
}
