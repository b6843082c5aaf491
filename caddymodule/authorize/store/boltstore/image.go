package boltstore

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
)

// The format of bbolt, version 2, in the machine's byte order (page.go and meta.go in
// go.etcd.io/bbolt/internal/common). It is read here without a mapping, and every length is
// checked: bbolt panics at a bad page, and dies of SIGBUS at a missing one.
const (
	boltMagic   = 0xED0CDAED
	boltVersion = 2

	pageHeaderSize = 16 // id, flags, count, overflow
	elementSize    = 16
	metaSize       = 64

	branchPage   = 0x01
	leafPage     = 0x02
	freelistPage = 0x10

	bucketElement    = 0x01
	bucketHeaderSize = 16

	noFreelist = 1<<64 - 1

	minPageSize, maxPageSize = 1 << 10, 1 << 24
)

// image is a file as of bbolt's last transaction.
type image struct {
	file     io.ReaderAt
	pageSize uint64
	root     uint64 // page of the bucket of buckets
	freelist uint64 // page
	end      uint64 // the number of pages
	txid     uint64
	seen     map[uint64]bool // pages that were read
}

var errNoStore = errors.New("it is no bbolt database")

// readImage finds the later of the two meta pages, if they are intact.
func readImage(file io.ReaderAt, size int64) (*image, error) {
	var found *image
	// The second begins where the first ends, but the first may be damaged.
	for at := int64(0); at+pageHeaderSize+metaSize <= size && at <= maxPageSize; at = max(2*at, minPageSize) {
		page := make([]byte, pageHeaderSize+metaSize)
		if _, err := file.ReadAt(page, at); err != nil {
			return nil, err
		}
		i, ok := parseMeta(page[pageHeaderSize:])
		if ok && (at == 0 || uint64(at) == i.pageSize) && (found == nil || i.txid > found.txid) {
			found = i
		}
	}
	if found == nil {
		return nil, errNoStore
	}
	found.file, found.seen = file, map[uint64]bool{0: true, 1: true}
	return found, nil
}

func parseMeta(b []byte) (*image, bool) {
	sum := fnv.New64a()
	_, _ = sum.Write(b[:56])
	i := &image{
		pageSize: uint64(u32(b, 8)), root: u64(b, 16), freelist: u64(b, 32), end: u64(b, 40), txid: u64(b, 48),
	}
	return i, u32(b, 0) == boltMagic && u32(b, 4) == boltVersion && u64(b, 56) == sum.Sum64() &&
		i.pageSize >= minPageSize && i.pageSize <= maxPageSize
}

func u16(b []byte, at int) uint16 { return binary.NativeEndian.Uint16(b[at:]) }
func u32(b []byte, at int) uint32 { return binary.NativeEndian.Uint32(b[at:]) }
func u64(b []byte, at int) uint64 { return binary.NativeEndian.Uint64(b[at:]) }

// page reads a page with its overflow. It refuses a page that was read before.
func (i *image) page(id uint64) ([]byte, error) {
	if id >= i.end {
		return nil, fmt.Errorf("page %d of %d", id, i.end)
	}
	b := make([]byte, i.pageSize)
	if _, err := i.file.ReadAt(b, int64(id*i.pageSize)); err != nil {
		return nil, fmt.Errorf("page %d: %w", id, err)
	}
	overflow := uint64(u32(b, 12))
	if u64(b, 0) != id || id+overflow >= i.end {
		return nil, fmt.Errorf("page %d is not what it should be", id)
	}
	for n := id; n <= id+overflow; n++ {
		if i.seen[n] {
			return nil, fmt.Errorf("page %d is part of two things", n)
		}
		i.seen[n] = true
	}
	if overflow > 0 {
		b = append(b, make([]byte, overflow*i.pageSize)...)
		if _, err := i.file.ReadAt(b, int64(id*i.pageSize)); err != nil {
			return nil, fmt.Errorf("page %d: %w", id, err)
		}
	}
	return b, nil
}

// element is an entry, a bucket, or a reference to another page.
type element struct {
	bucket     bool
	key, value []byte
	child      uint64
}

// elements returns those of a page, whose keys must be in order.
func elements(page []byte) ([]element, error) {
	flags, count := u16(page, 8), int(u16(page, 10))
	if flags != branchPage && flags != leafPage || pageHeaderSize+count*elementSize > len(page) || flags == branchPage && count == 0 {
		return nil, fmt.Errorf("a page of type %x with %d elements", flags, count)
	}
	list := make([]element, count)
	for n := range list {
		at := pageHeaderSize + n*elementSize
		e := &list[n]
		var position, key, value uint64
		if flags == branchPage {
			position, key, e.child = uint64(u32(page, at)), uint64(u32(page, at+4)), u64(page, at+8)
		} else {
			e.bucket = u32(page, at)&bucketElement != 0
			position, key, value = uint64(u32(page, at+4)), uint64(u32(page, at+8)), uint64(u32(page, at+12))
		}
		begin := uint64(at) + position
		if begin+key+value > uint64(len(page)) {
			return nil, errors.New("an element beyond its page")
		}
		e.key, e.value = page[begin:begin+key], page[begin+key:begin+key+value]
		if n > 0 && bytes.Compare(list[n-1].key, e.key) >= 0 {
			return nil, errors.New("a page out of order")
		}
	}
	return list, nil
}

// walker walks a tree and notes its damage.
type walker struct {
	*image
	damage []error // the first few
	lost   int     // pages, and with each all below it
}

const maxDamage = 5

func (w *walker) note(err error) {
	if w.lost++; len(w.damage) < maxDamage {
		w.damage = append(w.damage, err)
	}
}

// span is the range of a page's keys: from is the first, and all are below to; nil is no
// bound. bbolt finds a page by its first key. If that is not there, bbolt adds another page
// beside it, and fails later.
type span struct{ from, to []byte }

func (s span) check(list []element) error {
	switch {
	case s.from != nil && (len(list) == 0 || !bytes.Equal(list[0].key, s.from)),
		s.to != nil && bytes.Compare(list[len(list)-1].key, s.to) >= 0:
		return errors.New("a page out of place")
	}
	return nil
}

// tree calls visit for each readable element of a tree's leaves. It ends, because no page
// is read twice.
func (w *walker) tree(id uint64, place span, visit func(element)) {
	page, err := w.page(id)
	var list []element
	if err == nil {
		list, err = elements(page)
	}
	if err != nil {
		w.note(err)
		return
	}
	if err := place.check(list); err != nil {
		w.note(err)
	}
	for n, e := range list {
		if u16(page, 8) == leafPage {
			visit(e)
			continue
		}
		below := span{from: e.key, to: place.to}
		if n+1 < len(list) {
			below.to = list[n+1].key
		}
		w.tree(e.child, below, visit)
	}
}

// bucket calls visit for each entry of a bucket, which is inline or has its own pages.
func (w *walker) bucket(e element, visit func(element)) {
	if len(e.value) < bucketHeaderSize {
		w.note(errors.New("a bucket without a header"))
		return
	}
	if root := u64(e.value, 0); root != 0 {
		w.tree(root, span{}, visit)
		return
	}
	page := e.value[bucketHeaderSize:]
	if len(page) < pageHeaderSize || u16(page, 8) != leafPage {
		w.note(errors.New("a bucket that is no page"))
		return
	}
	list, err := elements(page)
	if err != nil {
		w.note(err)
	}
	for _, e := range list {
		visit(e)
	}
}

// free checks the list of free pages, which bbolt will overwrite: each page must be either
// in it or in use.
func (w *walker) free() {
	if w.freelist == noFreelist {
		return
	}
	page, err := w.page(w.freelist)
	if err != nil {
		w.note(err)
		return
	}
	at, count := pageHeaderSize, uint64(u16(page, 10))
	if count == 0xFFFF { // the number is too large, and stands in front
		at, count = at+8, u64(page, at)
	}
	if u16(page, 8) != freelistPage || count > uint64(len(page)-at)/8 {
		w.note(errors.New("the list of free pages is none"))
		return
	}
	for n, last := 0, uint64(1); n < int(count); n++ {
		id := u64(page, at+8*n)
		if id <= last || id >= w.end || w.seen[id] {
			w.note(fmt.Errorf("page %d is free and in use, or out of order in the list of free pages", id))
			return
		}
		last, w.seen[id] = id, true
	}
	if there := uint64(len(w.seen)); there < w.end && w.lost == 0 {
		w.note(fmt.Errorf("of %d pages %d are neither in use nor free", w.end, w.end-there))
	}
}
