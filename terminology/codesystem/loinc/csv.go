package loinc

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/caddy-fhir/caddy-fhir/terminology/definitions"
)

// Limits on a file, so that a foreign or hostile file is rejected before it uses much memory.
const (
	maxRecord  = 1 << 20 // bytes
	maxColumns = 128
)

// csvFile reads a file of comma-separated values in UTF-8 (RFC 4180). The first record contains the column names. Columns are
// found by name, because publishers add and move columns.
type csvFile struct {
	name     string
	columns  []string
	required []string // columns to read
	at       []int    // their indexes; -1 for a missing optional column
	fields   [][]byte // fields of the current record, valid until the next one is read
	line     int      // line of the current record
	lines    int      // lines before buffer[start]

	file       io.ReadCloser
	buffer     []byte // unread bytes are buffer[start:]
	start      int
	isComplete bool // the file is read completely
	unescaped  []byte
}

// openCSV opens a file and reads its header. A question mark follows the name of a column that may be missing.
func openCSV(r *definitions.Release, name string, columns []string) (*csvFile, error) {
	file, err := r.Open(name)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	f := &csvFile{name: name, file: file, buffer: make([]byte, 0, 1<<18)}
	if err := f.readHeader(columns); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return f, nil
}

func (f *csvFile) readHeader(columns []string) error {
	ok, err := f.readRecord()
	if err != nil || !ok {
		return f.errorf("no header: %w", errors.Join(err, io.ErrUnexpectedEOF))
	}
	for _, name := range f.fields {
		f.columns = append(f.columns, string(bytes.Trim(name, "\ufeff\"")))
	}
	for _, column := range columns {
		name := strings.TrimSuffix(column, "?")
		index := slices.IndexFunc(f.columns, func(other string) bool { return strings.EqualFold(name, other) })
		if index < 0 && name == column {
			return f.errorf("no column %s in the header", name)
		}
		f.required, f.at = append(f.required, name), append(f.at, index)
	}
	return nil
}

// value returns the value of the i-th column to read. It is nil if the column is missing.
func (f *csvFile) value(i int) []byte {
	if f.at[i] < 0 {
		return nil
	}
	return f.fields[f.at[i]]
}

// each calls visit for each record and closes the file.
func (f *csvFile) each(visit func() error) (err error) {
	defer func() { err = errors.Join(err, f.file.Close()) }()
	for {
		ok, err := f.readRecord()
		switch {
		case err != nil:
			return f.errorf("%w", err)
		case !ok:
			return nil
		case len(f.fields) != len(f.columns):
			return f.errorf("%d columns, but the header has %d", len(f.fields), len(f.columns))
		}
		if err := visit(); err != nil {
			return err
		}
	}
}

// errorf returns an error that names the file and line.
func (f *csvFile) errorf(format string, arguments ...any) error {
	return fmt.Errorf("%s line %d: %w", f.name, f.line, fmt.Errorf(format, arguments...))
}

// errIncomplete means that the buffer ends within a record.
var errIncomplete = errors.New("incomplete record")

// readRecord reads the next record and skips blank lines. ok is false at the end of the file.
func (f *csvFile) readRecord() (ok bool, err error) {
	for {
		f.line = f.lines + 1
		n, err := f.parse(f.buffer[f.start:])
		switch {
		case errors.Is(err, errIncomplete):
			if err := f.fill(); err != nil {
				return false, err
			}
			continue
		case err != nil:
			return false, err
		case n == 0:
			return false, nil
		}
		record := f.buffer[f.start : f.start+n]
		f.start += n
		f.lines += bytes.Count(record, []byte{'\n'})
		if len(f.fields) > 1 || len(f.fields[0]) > 0 {
			if bytes.IndexByte(record, 0) >= 0 {
				err = errors.New("contains a NUL byte")
			} else if !utf8.Valid(record) {
				err = errors.New("not UTF-8")
			}
			return true, err
		}
	}
}

// fill reads more of the file into the buffer.
func (f *csvFile) fill() error {
	f.buffer = f.buffer[:copy(f.buffer, f.buffer[f.start:])]
	f.start = 0
	switch {
	case len(f.buffer) >= maxRecord:
		return fmt.Errorf("longer than %d bytes", maxRecord)
	case len(f.buffer) == cap(f.buffer):
		f.buffer = append(make([]byte, 0, 2*cap(f.buffer)), f.buffer...)
	}
	n, err := f.file.Read(f.buffer[len(f.buffer):cap(f.buffer)])
	f.buffer = f.buffer[:len(f.buffer)+n]
	if errors.Is(err, io.EOF) {
		f.isComplete, err = true, nil
	}
	return err
}

// parse splits the first record of data into fields. It returns the size of the record, which is 0 at the end of the file, or
// errIncomplete.
func (f *csvFile) parse(data []byte) (size int, err error) {
	f.fields, f.unescaped = f.fields[:0], f.unescaped[:0]
	if len(data) == 0 && f.isComplete {
		return 0, nil
	}
	for i := 0; ; i++ {
		if len(f.fields) == maxColumns {
			return 0, fmt.Errorf("more than %d columns", maxColumns)
		}
		field, end, err := f.parseField(data[i:])
		if err != nil {
			return 0, err
		}
		f.fields = append(f.fields, field)
		if i += end; i == len(data) {
			return i, nil
		}
		if data[i] == '\n' {
			return i + 1, nil
		}
	}
}

// parseField returns the first field of data and the index of the comma or line feed after it. The index is len(data) at the end
// of the file.
func (f *csvFile) parseField(data []byte) (field []byte, end int, err error) {
	quoted := len(data) > 0 && data[0] == '"'
	if quoted {
		if field, end, err = f.parseQuoted(data); err != nil {
			return nil, 0, err
		}
	}
	for rest := end; ; end++ {
		switch {
		case end == len(data) && !f.isComplete:
			return nil, 0, errIncomplete
		case end < len(data) && data[end] != ',' && data[end] != '\n':
			if quoted && data[end] != '\r' {
				return nil, 0, fmt.Errorf("%q after the closing quote of column %d", data[end], len(f.fields)+1)
			}
		case quoted:
			return field, end, nil
		default:
			return bytes.TrimSuffix(data[rest:end], []byte{'\r'}), end, nil
		}
	}
}

// parseQuoted returns the content of the quoted field at the start of data, and the index after the closing quote.
func (f *csvFile) parseQuoted(data []byte) (field []byte, end int, err error) {
	hasQuotes := false
	for end = 1; ; end += 2 {
		quote := bytes.IndexByte(data[end:], '"')
		if end += quote; quote < 0 || end+1 == len(data) {
			switch {
			case !f.isComplete:
				return nil, 0, errIncomplete
			case quote < 0:
				return nil, 0, fmt.Errorf("the file ends within column %d, which has no closing quote: %w", len(f.fields)+1, io.ErrUnexpectedEOF)
			}
		}
		if end+1 < len(data) && data[end+1] == '"' {
			hasQuotes = true
			continue
		}
		field = data[1:end]
		if hasQuotes {
			from := len(f.unescaped)
			f.unescaped = append(f.unescaped, bytes.ReplaceAll(field, []byte(`""`), []byte(`"`))...)
			field = f.unescaped[from:]
		}
		return field, end + 1, nil
	}
}

// codeKey is a code as a number: the letters, the number and the check digit.
type codeKey uint64

// maxDigits is the maximum number of digits of a code besides the check digit, so that it is less than 1<<48 with it. Codes have
// at most 7.
const maxDigits = 13

// parseCode parses a code: digits, a hyphen and a check digit, with two letters before them unless it is a term.
func parseCode(code []byte) (key codeKey, ok bool) {
	digits := code
	for len(digits) > 0 && 'A' <= digits[0] && digits[0] <= 'Z' {
		key, digits = key<<8|codeKey(digits[0]), digits[1:]
	}
	n := len(digits) - 2
	if n < 1 || n > maxDigits || digits[n] != '-' || digits[0] == '0' || len(code) > len(digits)+2 {
		return 0, false
	}
	number := codeKey(0)
	for i, digit := range digits {
		switch {
		case i == n:
		case digit < '0' || digit > '9':
			return 0, false
		default:
			number = number*10 + codeKey(digit-'0')
		}
	}
	return key<<48 | number, true
}

// code returns the key of the code in the i-th column to read.
func (f *csvFile) code(i int) (codeKey, error) {
	key, ok := parseCode(f.value(i))
	if !ok {
		return 0, f.errorf("%s is not a LOINC code: %q", f.required[i], f.value(i)[:min(len(f.value(i)), 40)])
	}
	return key, nil
}
