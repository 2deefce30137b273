-- The library cmsgpack, as scripts of Redis' clients see it. A part of sandbox.lua: numbers are packed by Python.

local ask, fail, failure, length_of, DEPTH_MAX = ...

local byte, char, concat, floor, next = string.byte, string.char, table.concat, math.floor, next
local rawget, select, sub, type, unpack = rawget, select, string.sub, type, unpack

local function packed(shape, number)
    local _, value = ask("pack", shape, number)
    return value
end

-- Return a head of the first kind that has room for a length: kinds are pairs of a bound and a first byte.
local function head(length, kinds)
    for at = 1, #kinds, 3 do
        if length <= kinds[at] then
            if kinds[at + 2] == "" then return char(kinds[at + 1] + length) end
            return char(kinds[at + 1]) .. packed(kinds[at + 2], length)
        end
    end
end

local LONG = 2 ^ 32 - 1
local TEXT = {31, 0xA0, "", 255, 0xD9, ">B", 65535, 0xDA, ">H", LONG, 0xDB, ">I"}
local ARRAY = {15, 0x90, "", 65535, 0xDC, ">H", LONG, 0xDD, ">I"}
local MAP = {15, 0x80, "", 65535, 0xDE, ">H", LONG, 0xDF, ">I"}
local POSITIVE = {127, 0, "", 255, 0xCC, ">B", 65535, 0xCD, ">H", LONG, 0xCE, ">I", 2 ^ 64 - 2048, 0xCF, ">Q"}

local function pack(out, value, depth)
    local kind = type(value)
    if kind == "string" then
        out[#out + 1] = head(#value, TEXT) .. value
    elseif kind == "boolean" then
        out[#out + 1] = value and "\195" or "\194"
    elseif kind == "number" then
        if floor(value) ~= value or value < -2 ^ 63 or value > 2 ^ 64 - 2048 then
            out[#out + 1] = packed("real", value)
        elseif value >= 0 then
            out[#out + 1] = head(value, POSITIVE)
        elseif value >= -32 then
            out[#out + 1] = char(256 + value)
        elseif value >= -128 then
            out[#out + 1] = "\208" .. packed(">b", value)
        elseif value >= -32768 then
            out[#out + 1] = "\209" .. packed(">h", value)
        elseif value >= -2 ^ 31 then
            out[#out + 1] = "\210" .. packed(">i", value)
        else
            out[#out + 1] = "\211" .. packed(">q", value)
        end
    elseif kind == "table" and depth < 16 then
        local length, count = length_of(value)
        if length and length == count then
            out[#out + 1] = head(length, ARRAY)
            for at = 1, length do
                pack(out, rawget(value, at), depth + 1)
            end
        else
            count = 0
            for _ in next, value do
                count = count + 1
            end
            out[#out + 1] = head(count, MAP)
            for key, item in next, value do
                pack(out, key, depth + 1)
                pack(out, item, depth + 1)
            end
        end
    else
        out[#out + 1] = "\192"
    end
end

-- How numbers and lengths are kept that have a first byte of their own: length in bytes, and shape.
local SHAPES = {
    [0xCA] = {4, ">f"}, [0xCB] = {8, ">d"}, [0xCC] = {1, ">B"}, [0xCD] = {2, ">H"}, [0xCE] = {4, ">I"},
    [0xCF] = {8, ">Q"}, [0xD0] = {1, ">b"}, [0xD1] = {2, ">h"}, [0xD2] = {4, ">i"}, [0xD3] = {8, ">q"},
}
local LENGTHS = {
    [0xC4] = {1, ">B"}, [0xC5] = {2, ">H"}, [0xC6] = {4, ">I"},
    [0xD9] = {1, ">B"}, [0xDA] = {2, ">H"}, [0xDB] = {4, ">I"},
    [0xDC] = {2, ">H"}, [0xDD] = {4, ">I"}, [0xDE] = {2, ">H"}, [0xDF] = {4, ">I"},
}

local function bytes_at(text, at, count)
    if at + count - 1 > #text then failure("Missing bytes in input.") end
    return sub(text, at, at + count - 1), at + count
end

local function unpacked_number(text, at, shape)
    local bytes, behind_it = bytes_at(text, at, shape[1])
    local _, number = ask("unpack", shape[2], bytes)
    return number, behind_it
end

local function items_at(text, at, count, is_map, depth, unpack_at)
    if depth > DEPTH_MAX then failure("Bad data format in input.") end
    local items = {}
    for number = 1, count do
        local key = number
        if is_map then
            key, at = unpack_at(text, at, depth + 1)
            if key == nil or key ~= key then failure("Bad data format in input.") end
        end
        items[key], at = unpack_at(text, at, depth + 1)
    end
    return items, at
end

local function unpack_at(text, at, depth)
    local first
    first, at = bytes_at(text, at, 1)
    first = byte(first)
    if first < 0x80 then return first, at end
    if first >= 0xE0 then return first - 256, at end
    if first < 0x90 then return items_at(text, at, first - 0x80, true, depth, unpack_at) end
    if first < 0xA0 then return items_at(text, at, first - 0x90, false, depth, unpack_at) end
    if first < 0xC0 then return bytes_at(text, at, first - 0xA0) end
    if first == 0xC0 then return nil, at end
    if first == 0xC2 or first == 0xC3 then return first == 0xC3, at end
    if SHAPES[first] then return unpacked_number(text, at, SHAPES[first]) end
    if not LENGTHS[first] then failure("Bad data format in input.") end
    local length
    length, at = unpacked_number(text, at, LENGTHS[first])
    if first < 0xDC then return bytes_at(text, at, length) end
    return items_at(text, at, length, first >= 0xDE, depth, unpack_at)
end

local cmsgpack = {_NAME = "cmsgpack"}

function cmsgpack.pack(...)
    if select("#", ...) == 0 then fail("bad argument #0 to 'pack' (MessagePack pack needs input.)") end
    local out = {}
    for at = 1, select("#", ...) do
        pack(out, (select(at, ...)), 0)
    end
    return concat(out)
end

function cmsgpack.unpack(text)
    if type(text) ~= "string" then fail("bad argument #1 to 'unpack' (string expected)") end
    local values, count, at = {}, 0, 1
    while at <= #text do
        count = count + 1
        values[count], at = unpack_at(text, at, 0)
    end
    if count > 1000 then failure("Too many values to return.") end
    return unpack(values, 1, count)
end

return cmsgpack
