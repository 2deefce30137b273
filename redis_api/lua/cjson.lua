-- The library cjson, as scripts of Redis' clients see it. A part of sandbox.lua, from which it gets what it may not
-- do without: what work costs, errors that say where the script is, and the length of a table that is an array.

local spend, fail, length_of = ...

local char, find, format, gsub = string.char, string.find, string.format, string.gsub
local match, sub, concat, floor = string.match, string.sub, table.concat, math.floor
local next, rawequal, rawget, select = next, rawequal, rawget, select
local tonumber, tostring, type = tonumber, tostring, type

local null = newproxy(false)
local NESTING_MAX = 1000
local escapes = {
    ['"'] = '\\"', ["\\"] = "\\\\", ["/"] = "\\/", ["\b"] = "\\b", ["\f"] = "\\f", ["\n"] = "\\n",
    ["\r"] = "\\r", ["\t"] = "\\t", ["\127"] = "\\u007f",
}
for code = 0, 31 do
    escapes[char(code)] = escapes[char(code)] or format("\\u%04x", code)
end
local unescaped = {b = "\b", f = "\f", n = "\n", r = "\r", t = "\t", ['"'] = '"', ["\\"] = "\\", ["/"] = "/"}

local function quoted(text)
    spend(#text)
    return '"' .. gsub(text, '[%c"\\/]', escapes) .. '"'
end

local function number_text(number)
    if number ~= number or number == 1 / 0 or number == -1 / 0 then
        fail("Cannot serialise number: must not be NaN or Inf")
    end
    return format("%.14g", number)
end

local function encode(out, value, depth)
    local kind = type(value)
    if kind == "string" then
        out[#out + 1] = quoted(value)
    elseif kind == "number" then
        out[#out + 1] = number_text(value)
    elseif kind == "boolean" then
        out[#out + 1] = value and "true" or "false"
    elseif value == nil or rawequal(value, null) then
        out[#out + 1] = "null"
    elseif kind ~= "table" then
        fail("Cannot serialise " .. kind .. ": type not supported")
    else
        if depth > NESTING_MAX then fail("Cannot serialise, excessive nesting (1001)") end
        local length, count = length_of(value)
        if length and length > 10 and length > count * 2 then
            fail("Cannot serialise table: excessively sparse array")
        end
        if length and length > 0 then
            out[#out + 1] = "["
            for at = 1, length do
                if at > 1 then out[#out + 1] = "," end
                encode(out, rawget(value, at), depth + 1)
            end
            out[#out + 1] = "]"
        else
            out[#out + 1] = "{"
            local is_first = true
            for key, item in next, value do
                if not is_first then out[#out + 1] = "," end
                is_first = false
                if type(key) == "number" then
                    out[#out + 1] = '"' .. number_text(key) .. '":'
                elseif type(key) == "string" then
                    out[#out + 1] = quoted(key) .. ":"
                else
                    fail("Cannot serialise " .. type(key) .. ": table key must be a number or string")
                end
                encode(out, item, depth + 1)
            end
            out[#out + 1] = "}"
        end
    end
end

local function utf8(code)
    if code < 0x80 then return char(code) end
    if code < 0x800 then return char(0xC0 + floor(code / 64), 0x80 + code % 64) end
    if code < 0x10000 then
        return char(0xE0 + floor(code / 4096), 0x80 + floor(code / 64) % 64, 0x80 + code % 64)
    end
    return char(
        0xF0 + floor(code / 262144), 0x80 + floor(code / 4096) % 64, 0x80 + floor(code / 64) % 64, 0x80 + code % 64
    )
end

-- Return the string that begins behind a quote, and the place behind it; nil if it is none.
local function string_at(text, at)
    local parts = {}
    while true do
        local _, last = find(text, '^[^"\\%c]+', at)
        if last then
            spend(last - at)
            parts[#parts + 1] = sub(text, at, last)
            at = last + 1
        end
        local next_char = sub(text, at, at)
        if next_char == '"' then return concat(parts), at + 1 end
        if next_char == "\127" then
            parts[#parts + 1], at = next_char, at + 1
        elseif next_char ~= "\\" then
            return nil, at
        else
            local name = sub(text, at + 1, at + 1)
            if unescaped[name] then
                parts[#parts + 1], at = unescaped[name], at + 2
            else
                local code = tonumber(match(text, "^u(%x%x%x%x)", at + 1) or "", 16)
                if not code then return nil, at end
                at = at + 6
                if code >= 0xDC00 and code < 0xE000 then return nil, at end
                if code >= 0xD800 and code < 0xDC00 then
                    local low = tonumber(match(text, "^\\u(%x%x%x%x)", at) or "", 16)
                    if not low or low < 0xDC00 or low >= 0xE000 then return nil, at end
                    code, at = 0x10000 + (code - 0xD800) * 0x400 + low - 0xDC00, at + 6
                end
                parts[#parts + 1] = utf8(code)
            end
        end
    end
end

local signs = {
    ["{"] = "T_OBJ_BEGIN", ["}"] = "T_OBJ_END", ["["] = "T_ARR_BEGIN", ["]"] = "T_ARR_END",
    [","] = "T_COMMA", [":"] = "T_COLON", [""] = "T_END",
}
local constants = {
    ["true"] = {"T_BOOLEAN", true}, ["false"] = {"T_BOOLEAN", false}, null = {"T_NULL", null},
}

-- Return the next token: what it is, its value, where it begins, where it ends.
local function token_at(text, at)
    local _, last = find(text, "^[ \t\r\n]*", at)
    spend(last - at + 4)
    at = last + 1
    local first = sub(text, at, at)
    if signs[first] then return signs[first], nil, at, at + 1 end
    if first == '"' then
        local value, behind_it = string_at(text, at + 1)
        if value then return "T_STRING", value, at, behind_it end
        return "invalid token", nil, behind_it, at
    end
    local word = match(text, "^%a+", at)
    local constant = word and constants[word]
    if constant then return constant[1], constant[2], at, at + #word end
    local digits = match(text, "^-?%d+%.?%d*[eE]?[+-]?%d*", at)
    local number = digits and tonumber(digits)
    if number then return "T_NUMBER", number, at, at + #digits end
    return "invalid token", nil, at, at
end

local function unexpected(wanted, found, at)
    fail(format("Expected %s but found %s at character %d", wanted, found, at))
end

-- Return the value that a token begins, and the place behind it.
local function value_of(text, kind, value, at, behind_it, depth)
    if kind == "T_STRING" or kind == "T_NUMBER" or kind == "T_BOOLEAN" or kind == "T_NULL" then
        return value, behind_it
    end
    if kind ~= "T_OBJ_BEGIN" and kind ~= "T_ARR_BEGIN" then unexpected("value", kind, at) end
    if depth > NESTING_MAX then
        fail(format("Found too many nested data structures (1001) at character %d", at))
    end
    local is_object, items, count = kind == "T_OBJ_BEGIN", {}, 0
    local ending = is_object and "T_OBJ_END" or "T_ARR_END"
    kind, value, at, behind_it = token_at(text, behind_it)
    if kind == ending then return items, behind_it end
    while true do
        local key = count + 1
        if is_object then
            if kind ~= "T_STRING" then unexpected("object key string", kind, at) end
            key = value
            kind, value, at, behind_it = token_at(text, behind_it)
            if kind ~= "T_COLON" then unexpected("colon", kind, at) end
            kind, value, at, behind_it = token_at(text, behind_it)
        end
        items[key], behind_it = value_of(text, kind, value, at, behind_it, depth + 1)
        count = count + 1
        kind, value, at, behind_it = token_at(text, behind_it)
        if kind == ending then return items, behind_it end
        if kind ~= "T_COMMA" then
            unexpected(is_object and "comma or object end" or "comma or array end", kind, at)
        end
        kind, value, at, behind_it = token_at(text, behind_it)
    end
end

local cjson = {null = null, _NAME = "cjson", _VERSION = "2.1.0"}

function cjson.encode(...)
    if select("#", ...) ~= 1 then fail("bad argument #1 to 'encode' (expected 1 argument)") end
    local out = {}
    encode(out, (...), 1)
    return concat(out)
end

function cjson.decode(...)
    local text = ...
    if select("#", ...) ~= 1 then fail("bad argument #1 to 'decode' (expected 1 argument)") end
    if type(text) == "number" then text = tostring(text) end
    if type(text) ~= "string" then
        fail("bad argument #1 to 'decode' (string expected, got " .. type(text) .. ")")
    end
    local kind, value, at, behind_it = token_at(text, 1)
    value, behind_it = value_of(text, kind, value, at, behind_it, 1)
    local rest, _, place = token_at(text, behind_it)
    if rest ~= "T_END" then unexpected("the end", rest, place) end
    return value
end

return cjson
